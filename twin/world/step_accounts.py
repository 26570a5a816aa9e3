"""Time, tokens, bytes and money of a job that runs outside, from the steps and plans that it reports.

The same facts as in a simulation: `plan_applied`, `iteration_done`, `time_lost`, which fill the time without
a gap from the start of the run on. Times are the job's own; bytes, GPUs and money of a plan are those of the
cost models. Nothing is accounted for before the job has said which plan it runs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import to_ns
from twin.core.domain import LinkState, Pair
from twin.core.plan import Plan
from twin.costs.migration import needs_restart
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import ResourceUse, plan_costs
from twin.world.ledger import Emit, Ledger

SHORT = 0.5
"""A gap before a step shorter than this share of it belongs to the step: data loading, bookkeeping."""


class StepAccounts:
    """Ledger of one job, from `since_ns` on. `emit` is called with type and payload of each fact, at the
    latest by `flush`."""

    def __init__(self, estimator: Estimator, emit: Emit, since_ns: int = 0) -> None:
        self._estimator = estimator
        self._ledger = Ledger(estimator, emit)
        self._nominal: ResourceUse | None = None  # of the plan that runs, without slowdown
        self._plan: Plan | None = None
        self._end_ns = since_ns  # all up to here is accounted for

    @property
    def end_ns(self) -> int:
        """Time up to which all is accounted for."""
        return self._end_ns

    def begin(self, ns: int) -> None:
        """Leaves the time before `ns` to another run."""
        self._end_ns = ns

    def run(self, ns: int, plan: Plan, pause_s: float, links: LinkState) -> None:
        """Takes that the job runs `plan` from `ns` on, after a pause for it.

        Bytes that changed domain are those of the cost model; a plan that runs already changes nothing.
        """
        if plan == self._plan:
            return
        until_ns = max(ns, self._end_ns)
        start_ns = max(self._end_ns, until_ns - to_ns(pause_s))
        self._wait(start_ns)
        restart = self._plan is not None and needs_restart(self._plan, plan)
        moved: dict[Pair, int] = {}
        if restart:
            sizes = self._estimator.move(self._plan, plan, links).bytes
            moved = {(int(i), int(j)): round(float(sizes[i, j])) for i, j in np.argwhere(sizes > 0) if i != j}
        ones = np.ones(self._estimator.cluster.size)
        self._ledger.use(plan, ones)
        self._nominal, self._plan = plan_costs(self._estimator, plan, ones), plan
        pause_ns = until_ns - start_ns
        restart_ns = min(pause_ns, to_ns(self._estimator.restart_s)) if restart else 0
        self._ledger.applied(plan, start_ns, pause_ns, restart_ns, moved)
        self._end_ns = until_ns

    def step(self, ns: int, seconds: float, computed_s: Mapping[int, float]) -> dict[int, float]:
        """Takes a step that ended at `ns`; returns computing time over nominal by domain in `computed_s`.

        A step that ended before what is accounted for already is left out.
        """
        nominal = self._nominal
        if nominal is None or ns <= self._end_ns:
            return {}
        start_ns = max(self._end_ns, ns - to_ns(seconds))
        if start_ns - self._end_ns < SHORT * (ns - start_ns):
            start_ns = self._end_ns
        self._wait(start_ns)
        extra_ns = self._beyond_nominal(nominal, ns - start_ns, computed_s)
        self._ledger.add_iterations(1, start_ns, ns - start_ns, 0, extra_ns)
        self._end_ns = ns
        usual = nominal.compute_ns
        return {k: to_ns(s) / usual[k] for k, s in computed_s.items() if usual[k] > 0 and s > 0}

    def stop(self, ns: int) -> None:
        """Takes that the job holds no GPUs from `ns` on."""
        self._wait(max(ns, self._end_ns))
        self.flush()
        self._nominal = self._plan = None

    def flush(self) -> None:
        """Emits the steps that have not been emitted yet."""
        self._ledger.flush()

    def _wait(self, until_ns: int) -> None:
        """Accounts for time without a step."""
        start_ns, self._end_ns = self._end_ns, until_ns
        if until_ns > start_ns:
            self._ledger.flush()
            self._ledger.lost("waiting", start_ns, until_ns - start_ns, charged=self._plan is not None)

    def _beyond_nominal(
        self, nominal: ResourceUse, length_ns: int, computed_s: Mapping[int, float]
    ) -> NDArray[np.float64]:
        """Computing time (K,) of a step beyond nominal: as measured, but never longer than the step."""
        usual: Sequence[int] = nominal.compute_ns
        real = [to_ns(computed_s[k]) if k in computed_s else ns for k, ns in enumerate(usual)]
        held = [ns if nominal.gpus[k] else 0 for k, ns in enumerate(real)]
        return np.minimum(held, length_ns) - np.array(usual, np.float64)
