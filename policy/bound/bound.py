"""The clairvoyant bound: the most tokens that could have been trained with the future of every link known.

Dynamic bound: the best path through (time, plan) over a set of plans: all of `used_plans` (so no policy that
uses them alone can exceed it), and the best plans found by search for the whole window, for its parts, and
around the path itself until that no longer helps. Each plan has the best free knobs at every instant: relays
as `policy.control.best_relay_times` chooses them, and the warm-up depths and allowed schedules of
`policy.control.knobs`.
Point-to-point mode, schedule and H of local SGD are those of the job and of `used_plans`: on tri-7b the
bound's own plan would be 2.6 to 3.6 % faster with overlapped messages. Over the set the path is exact
(`policy.bound.best_path`), under assumptions that favour the bound:

* time is continuous: migrations may start at any instant, not only at decisions or after an iteration;
* work is fluid: fractions of iterations count, and a stalled iteration keeps its progress;
* a migration costs the restart and the least time of its transfers: each pair of domains on its own, over its
  best link or relay, at the best bandwidth of the time it touches (`policy.bound.time_grid.transfer_times`);
  resharding inside a domain is free;
* of plans that differ in free knobs alone the best counts at every instant;
* relays cost no egress, and those that compared policies chose share no link;
* GPUs never fail and compute at nominal speed; the first plan is free.

In a world with jitter, which also draws iterations shorter than nominal, the bound holds on average only. The
event engine times iterations differently by up to 1 %: compare with the kernel engine.

Where a space of plans is small enough it is priced against the path (`policy.bound.pricing`): plans that
could improve the path join the candidates, and no sequence of plans exceeds `ceiling_tokens`.

Static bound: the best single plan in hindsight with the job's own knobs and direct links, over all orders x
shared sizes x cuts where pruning makes that affordable (`policy.bound.best_fixed_plan`), else over the
candidates. Kept bound: the best single placement with its free knobs turned at every instant, over the
candidates of the path; that is what a policy which turns knobs and never migrates could reach at most.

`exact`: the candidates are all plans at default placement with those knobs (spaces of up to `WHOLE_SPACE`
plans), and relays as stated above. Otherwise a policy with a better plan that no search and no compared
policy found could exceed the bound. `static_exact`: no plan in the space of the static bound, at the same
knobs, beats its plan.

Local SGD trades quality for communication by an estimated factor (`twin.costs.replica_sync`), so
`synchronous_tokens` is the same bound without local SGD.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_ns
from policy.bound import capacity
from policy.bound.best_fixed_plan import BestFixedPlan, best_fixed, every_plan
from policy.bound.best_path import Leg, best_path
from policy.bound.candidate_plans import CandidatePool, Family, best_of, window_parts
from policy.bound.pricing import price, space_of
from policy.bound.time_grid import Grid, grid, transfer_times
from policy.control.horizon import egress_usd, per_iteration
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import open_links
from twin.traces.wan_trace import WanTrace

Float = NDArray[np.float64]
WHOLE_SPACE = 400
"""A space with no more plans goes into the path search as a whole."""
FIXED, EACH = 60, 6
"""Families on paths: the best over the window, and over each of its parts."""
ROUNDS = 3
"""Most times that plans around the path are added."""
PRICED = 1_000_000
"""A space with no more plans is priced: three domains of four GPUs. The 157 million plans of four domains of
16 take minutes."""
ANY = 2**62
"""More plans than any space has."""
ROUNDING = 1e-9
"""Relative tolerance for times that the world rounds to nanoseconds."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of a run. Iterations are fractional; `tokens` are theirs.

    `timeline` is the path: at `ns` work begins under the plan. `candidates` is the number of plans on paths,
    `enumerated` that of the static bound. `utilisation` (mean compute seconds of the active domains over the
    window) and `egress_usd` (iterations and migrations) are those of the path. `synchronous_tokens`: the most
    without local SGD. `ceiling_tokens`: proven for all sequences without local SGD; None where not proven.
    `capacity_tokens`: all GPUs computing all the time (`policy.bound.capacity`).
    """

    tokens: float
    iterations: float
    static_tokens: float
    static_plan: Plan
    kept_tokens: float
    kept_plan: Plan
    timeline: tuple[tuple[int, Plan], ...]
    candidates: int
    enumerated: int
    exact: bool
    static_exact: bool
    egress_usd: float
    utilisation: float
    synchronous_tokens: float
    ceiling_tokens: float | None
    capacity_tokens: float

    def regret_kept(self, tokens: float) -> float | None:
        """Returns the share of the tokens of the best kept plan, knobs turned, that was not trained; negative
        for more."""
        return 1 - tokens / self.kept_tokens if self.kept_tokens else None

    def regret(self, tokens: float, *, local_sgd: bool) -> float | None:
        """Returns the share of the bound's tokens that was not trained; None where it bounds nothing.

        Runs without local SGD are compared with the bound without it. A bound over candidates may be passed
        by a run: then it is no bound for that run, and there is no regret.
        """
        most = self.tokens if local_sgd else self.synchronous_tokens
        if not most or tokens > most * (1 + ROUNDING):
            return None
        return max(0.0, 1 - tokens / most)


def uses_local_sgd(plan: Plan) -> bool:
    """Tells whether replicas take several steps between exchanges."""
    return plan.sync is not None and plan.sync.inner_steps > 1


def clairvoyant(
    estimator: Estimator,
    wan: WanTrace,
    decision_times_ns: Sequence[int],
    *,
    restart_s: float,
    used_plans: Sequence[Plan] = (),
    copied_ahead: bool = False,
    priced: int = PRICED,
    progress: Progress = SILENT,
) -> Bound:
    """Returns the bound for a world with the links `wan`; `used_plans` are all plans of the compared
    policies. With `copied_ahead` layers are copied during training, and a migration costs its restart alone.
    Spaces of up to `priced` plans are priced.

    Raises:
        InfeasibleError: no plan fits the model.
    """

    def bound_over(plans: Sequence[Plan], priced: int) -> Bound:
        return _bound_over(
            estimator, wan, decision_times_ns, restart_s, plans, copied_ahead, priced, progress
        )

    others = [plan for plan in used_plans if not uses_local_sgd(plan)]
    alone = bound_over(others, priced)
    if len(others) == len(used_plans):
        return alone
    found = bound_over([*used_plans, *(plan for _, plan in alone.timeline)], 0)
    return replace(
        found, tokens=max(found.tokens, alone.tokens), synchronous_tokens=alone.tokens,
        ceiling_tokens=alone.ceiling_tokens, kept_tokens=alone.kept_tokens, kept_plan=alone.kept_plan,
    )  # fmt: skip


def _bound_over(
    estimator: Estimator, wan: WanTrace, decision_times_ns: Sequence[int], restart_s: float,
    used_plans: Sequence[Plan], copied_ahead: bool, priced: int, progress: Progress,
) -> Bound:  # fmt: skip
    """Returns the bound with these plans among the candidates."""
    window = grid(wan, decision_times_ns, restart_s)
    pool = CandidatePool(estimator, window)
    pool.add(used_plans)
    space = every_plan(estimator, WHOLE_SPACE)
    pool.add(space)
    if not space:
        for first, last in window_parts(window):
            pool.add(pool.around(first, last))
    if not pool.families:
        raise InfeasibleError(
            f"no plan fits {estimator.job.model.name} into the cluster: there is no bound; add GPUs, "
            "or take a smaller model"
        )
    fixed = best_fixed(estimator, window, pool.best())
    pool.add([fixed.plan])
    paths = _Paths(pool, [*used_plans, *space], restart_s, copied_ahead)
    if space:
        return _described(paths, fixed, exact=True, ceiling=paths.value)
    paths.improve()
    return _described(paths, fixed, exact=False, ceiling=paths.price(priced, progress))


class _Paths:
    """The best path over a growing set of families."""

    def __init__(
        self, pool: CandidatePool, keep: Sequence[Plan], restart_s: float, copied_ahead: bool
    ) -> None:
        self.pool, self.restart_s, self.keep = pool, restart_s, set(keep)
        self.copied_ahead = copied_ahead
        self.value = 0.0
        self.legs: list[Leg] = []
        self.on_leg: list[Family] = []
        self.kept: tuple[float, Family] | None = None  # iterations of the best family that is never left
        self.candidates = 0
        self._find()

    def improve(self) -> None:
        """Adds plans that are good for the links of each leg, until that gains nothing."""
        for _ in range(ROUNDS):
            before, window = self.value, self.pool.window
            for leg, family in zip(self.legs, self.on_leg, strict=True):
                first, last = np.searchsorted(window.edges_s, [leg.start_s, leg.end_s]).tolist()
                first = min(first, window.slots - 1)  # a leg may begin where the window ends
                found = self.pool.around(first, max(last, first + 1), family.plan, top=EACH)
                self.pool.add(found)
                self.keep.update([*found, family.plan])
            self._find()
            if self.value <= before * (1 + 1e-6):
                return

    def price(self, most_plans: int, progress: Progress) -> float | None:
        """Adds plans that could improve the path, of a space of up to `most_plans`. Returns the ceiling in
        iterations, None where it is not proven."""
        shapes = space_of(self.pool.estimator, most_plans)
        if not shapes or self.pool.estimator.job.schedules:  # its bounds know the times of one schedule
            return None
        self._add_default_knobs()
        rate = np.stack([family.rate for family in self._chosen()])
        found = price(self.pool.estimator, self.pool.window, self.restart_s, rate, shapes, progress)
        if found.plans:
            self.pool.add(found.plans)
            self.keep.update([*found.plans, *(family.plan for family in self.on_leg)])
            self._find()
        return found.ceiling

    def _add_default_knobs(self) -> None:
        """Adds to every family the plan with the job's own knobs: it is in the space and costs no
        migration."""
        estimator = self.pool.estimator
        job = estimator.job
        plans = [
            replace(
                family.plan, routes=(), schedule=job.schedule, extra_warmup=job.extra_warmup, p2p=job.p2p,
                chunks=job.chunks,
            )
            for family in self._chosen()
            if family.plan.sync is None
        ]  # fmt: skip
        self.pool.add(plan for plan in plans if not estimator.problems(plan))

    def _chosen(self) -> list[Family]:
        """Returns the families that may be on a path now."""
        return self.pool.deepen(best_of(self.pool, self.keep, FIXED, EACH))

    def _find(self) -> None:
        families = self._chosen()
        rate = np.stack([family.rate for family in families], axis=1)
        window = self.pool.window
        transfers = transfer_times(self.pool.estimator, [family.plan for family in families], window)
        if self.copied_ahead:
            transfers = transfers._replace(table=np.zeros_like(transfers.table))
        whole = window.lengths_s @ rate
        best = int(whole.argmax())
        self.kept = float(whole[best]), families[best]
        floor = max(self.value, self.kept[0])
        self.value, self.legs = best_path(
            window.edges_s, rate, transfers, restart_s=self.restart_s, floor=floor
        )
        self.on_leg = [families[leg.plan] for leg in self.legs]
        self.candidates = sum(len(family.plans) for family in families)


def _described(paths: _Paths, fixed: BestFixedPlan, *, exact: bool, ceiling: float | None) -> Bound:
    """Returns tokens, money and utilisation of the path found."""
    estimator, window = paths.pool.estimator, paths.pool.window
    usd = busy_s = 0.0
    for n, (leg, family) in enumerate(zip(paths.legs, paths.on_leg, strict=True)):
        done = _done(window, family.rate, leg)
        each_s, each_usd = per_iteration(estimator, family.plan, None)
        run = done * estimator.tokens_per_iteration / estimator.tokens(family.plan)
        usd, busy_s = usd + run * each_usd, busy_s + run * each_s
        if n:
            moved = estimator.move(paths.on_leg[n - 1].plan, family.plan, open_links(estimator.cluster.size))
            usd += float(egress_usd(estimator, moved.bytes))
    assert paths.kept is not None
    kept, never_left = paths.kept
    per_iteration_tokens = estimator.tokens_per_iteration * (1 + ROUNDING)
    return Bound(
        tokens=paths.value * per_iteration_tokens,
        iterations=paths.value,
        static_tokens=fixed.iterations * per_iteration_tokens,
        static_plan=fixed.plan,
        kept_tokens=kept * per_iteration_tokens,
        kept_plan=never_left.plan,
        timeline=tuple((to_ns(leg.start_s), f.plan) for leg, f in zip(paths.legs, paths.on_leg, strict=True)),
        candidates=paths.candidates,
        enumerated=fixed.enumerated,
        exact=exact,
        static_exact=fixed.exact,
        egress_usd=usd,
        utilisation=busy_s / float(window.edges_s[-1]),
        synchronous_tokens=paths.value * per_iteration_tokens,
        ceiling_tokens=None if ceiling is None else ceiling * per_iteration_tokens,
        capacity_tokens=capacity.tokens_per_s(estimator) * float(window.edges_s[-1]),
    )


def _done(window: Grid, rate: Float, leg: Leg) -> float:
    """Returns the iterations of a family on a leg."""
    start, end = (
        np.clip(window.edges_s[:-1], leg.start_s, leg.end_s),
        np.clip(window.edges_s[1:], leg.start_s, leg.end_s),
    )
    return float(rate @ (end - start))
