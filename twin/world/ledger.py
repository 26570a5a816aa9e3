"""Facts about training and the resources it uses, made in one place so that they add up."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.core.domain import Pair
from twin.core.plan import Plan, to_json
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import ResourceUse, egress_usd, plan_costs, triples

Emit = Callable[[str, dict[str, Any]], None]
OnComputeTimes = Callable[[NDArray[np.float64]], None]
"""Called with the mean computing time of iterations over nominal (K,), NaN where a domain computed
nothing."""
MAX_RUNS = 1000
"""Different durations in one `iteration_done`; more are split, so that no payload grows without bound."""


class Ledger:
    """Batches complete iterations and charges pauses and losses to the plan in force."""

    def __init__(
        self, estimator: Estimator, emit: Emit, on_compute_times: OnComputeTimes = lambda ratio: None
    ) -> None:
        self._estimator = estimator
        self._emit = emit
        self._on_compute_times = on_compute_times
        self._nominal_ns = np.zeros(estimator.cluster.size)  # computing time of an iteration at nominal speed
        self._unmeasured, self._unmeasured_extra_ns = 0, np.zeros(estimator.cluster.size)
        self._costs: ResourceUse | None = None
        self._runs: list[list[int]] = []
        self._start_ns = self._stalled_ns = 0
        self._extra_ns = np.zeros(estimator.cluster.size)  # computing time of the batch beyond the usual
        self._completed = self._rolled_back = self._saved = 0
        self._each = estimator.tokens_per_iteration
        self._tokens = self._saved_tokens = 0

    @property
    def tokens(self) -> int:
        """Tokens trained: those of complete iterations, less those lost to failures."""
        return self._tokens

    @property
    def tokens_per_iteration(self) -> int:
        """Tokens of one iteration of the plan in force."""
        return self._each

    def checkpoint(self) -> None:
        """Make all work up to now safe from failures."""
        self._saved, self._saved_tokens = self._completed - self._rolled_back, self._tokens

    def roll_back(self) -> tuple[int, int]:
        """Fall back to the last checkpoint. Returns: iterations and tokens that were lost."""
        lost, tokens = self._completed - self._rolled_back - self._saved, self._tokens - self._saved_tokens
        self._rolled_back += lost
        self._tokens = self._saved_tokens
        return lost, tokens

    def use(self, plan: Plan, slowdown: NDArray[np.float64]) -> None:
        """Charge to `plan` at this compute slowdown (K,) from now on."""
        self.flush()
        self._costs = plan_costs(self._estimator, plan, slowdown)
        self._each = self._estimator.tokens(plan)
        nominal = plan_costs(self._estimator, plan, np.ones_like(slowdown)).compute_ns
        self._nominal_ns = np.array(nominal, np.float64)

    def measure(self) -> None:
        """Pass the iterations since the last call on to `on_compute_times`."""
        if self._unmeasured and self._costs is not None:
            computed_ns = np.array(self._costs.compute_ns) + self._unmeasured_extra_ns / self._unmeasured
            pace = np.full_like(computed_ns, np.nan)
            self._on_compute_times(
                np.divide(computed_ns, self._nominal_ns, out=pace, where=self._nominal_ns > 0)
            )
        self._unmeasured, self._unmeasured_extra_ns = 0, np.zeros_like(self._nominal_ns)

    @property
    def completed(self) -> int:
        """Iterations completed so far, those lost to failures included."""
        return self._completed

    def add_iterations(
        self,
        count: int,
        start_ns: int,
        duration_ns: int,
        stalled_ns: int,
        extra_ns: NDArray[np.float64] | None = None,
    ) -> None:
        """Add `count` complete iterations of equal duration, the first of which began at `start_ns`.

        `extra_ns` (K,): how much longer than usual each domain computed in each of them; None: as usual.
        """
        if len(self._runs) >= MAX_RUNS:
            self.flush()
        if not self._runs:
            self._start_ns = start_ns
        if self._runs and self._runs[-1][1] == duration_ns:
            self._runs[-1][0] += count
        else:
            self._runs.append([count, duration_ns])
        self._unmeasured += count
        if extra_ns is not None:
            self._extra_ns += count * extra_ns
            self._unmeasured_extra_ns += count * extra_ns
        self._stalled_ns += stalled_ns
        self._completed += count
        self._tokens += count * self._each

    def flush(self) -> None:
        """Emit the complete iterations that have not been emitted yet."""
        self.measure()
        if not self._runs:
            return
        runs, costs = self._runs, self._costs
        assert costs is not None, "iterations without a plan"
        count = sum(n for n, _ in runs)
        spent_ns = sum(n * ns for n, ns in runs)
        wan = {pair: count * size for pair, size in costs.wan_bytes.items()}
        extra_ns = np.rint(self._extra_ns).astype(np.int64).tolist()
        compute_ns = [count * ns + more for ns, more in zip(costs.compute_ns, extra_ns, strict=True)]
        payload = {
            "count": count,
            "first": self._completed - count,
            "start_ns": self._start_ns,
            "durations": runs,
            "tokens": count * self._each,
            "stalled_ns": self._stalled_ns,
            "compute_ns": compute_ns,
            "active_ns": [spent_ns if n else 0 for n in costs.gpus],
            "gpu_compute_ns": sum(n * ns for n, ns in zip(costs.gpus, compute_ns, strict=True)),
            "wan_bytes": triples(wan),
            **self._charge(spent_ns, wan, self._busy(compute_ns, count)),
        }
        self._runs, self._stalled_ns = [], 0
        self._extra_ns[:] = 0
        self._emit("iteration_done", payload)

    def _busy(self, compute_ns: list[int], count: int) -> float:
        """Computation of a batch in usual iterations, by GPU time."""
        costs = self._costs
        if not self._extra_ns.any() or costs is None or not costs.gpu_compute_ns:
            return count
        spent = sum(n * ns for n, ns in zip(costs.gpus, compute_ns, strict=True))
        return spent / costs.gpu_compute_ns

    def copied(self, number: int, start_ns: int, copied_ns: int, moved: dict[Pair, int]) -> None:
        """Emit round `number` of a pre-copy, begun at `start_ns`, beside which training went on."""
        self.flush()
        payload = {
            "round": number,
            "start_ns": start_ns,
            "copied_ns": copied_ns,
            "moved_bytes": triples(moved),
            **self._charge(0, moved),
        }
        self._emit("state_copied", payload)

    def applied(
        self, plan: Plan, start_ns: int, pause_ns: int, restart_ns: int, moved: dict[Pair, int]
    ) -> None:
        """Emit that `plan`, already in use, takes effect after a pause that began at `start_ns`."""
        assert self._costs is not None
        payload = {
            "plan": to_json(plan),
            "gpus": list(self._costs.gpus),
            "started_ns": start_ns,
            "pause_ns": pause_ns,
            "restart_ns": restart_ns,
            "moved_bytes": triples(moved),
            **self._charge(pause_ns, moved),
        }
        self._emit("plan_applied", payload)

    def lost(
        self,
        reason: str,
        start_ns: int,
        lost_ns: int,
        *,
        stalled_ns: int = 0,
        done: tuple[int, int] | None = None,
        moved: dict[Pair, int] | None = None,
        charged: bool = True,
    ) -> None:
        """Emit time without a complete iteration; `done`: the fraction of one that was computed, for nothing
        unless the run ends there.

        `charged`: the plan in force held its GPUs during that time.
        """
        if lost_ns == 0:
            return
        self.flush()
        wan: dict[Pair, int] = {}
        if done is not None and self._costs is not None:
            wan = {pair: size * done[0] // done[1] for pair, size in self._costs.wan_bytes.items()}
        vain = None if done is None else done[0] / done[1]
        payload = {
            "reason": reason,
            "start_ns": start_ns,
            "lost_ns": lost_ns,
            "stalled_ns": stalled_ns,
            "wan_bytes": triples({pair: size for pair, size in wan.items() if size}),
            "moved_bytes": triples(moved or {}),
            **self._charge(lost_ns if charged else 0, {**wan, **(moved or {})}, vain),
        }
        if reason == "horizon" and vain:  # not lost: nothing came in between but the end
            payload["part_tokens"] = vain * self._each
        if reason == "moving" and self._costs is not None:
            payload["gpus"] = list(self._costs.gpus)  # of the plan that never took effect
        self._emit("time_lost", payload)

    def _charge(self, held_ns: int, sent: dict[Pair, int], iterations: float | None = None) -> dict[str, Any]:
        costs = self._costs
        if costs is None:
            return {"egress_usd": 0.0, "gpu_ns": 0, "gpu_usd": 0.0, "energy_j": 0.0}
        return {
            "egress_usd": float(egress_usd(self._estimator.cluster, sent)),
            "gpu_ns": held_ns * costs.gpu_count,
            "gpu_usd": costs.gpu_usd(held_ns),
            "energy_j": costs.energy_j(held_ns, iterations),
        }
