"""The clairvoyant bound: the most that one could have trained, over a set of plans, who knew every link's
future (spec 4.5).

Dynamic bound: the best path through (time, plan). Its set of plans: all that `used_plans` names (so no
policy whose plans are in it can be above), and the best ones found by search for the whole window, for its
parts, and around the path itself until that no longer helps. Each counts with its free knobs turned at every
instant (spec 4.5 d): relays for its messages as `policy.turned` chooses them, and the best of the warm-up
depths that `policy.knobs` tries. Point-to-point mode, schedule and H of local SGD are the job's, and what
compared policies used beside that: on tri-7b the bound's own plan would be 2.6 to 3.6 % faster with
overlapped messages. Over the set the path is exact (`policy.bound_path`), and on the safe side of what the
world allows:

* time is continuous: moves may start at any instant, not only at decisions or at the end of an iteration;
* work is fluid: fractions of iterations count, a stalled iteration keeps what it did;
* a move costs the restart and the least time of its transfers: each pair of domains on its own, over its
  best link or relay, at the best bandwidth of the time it touches (`policy.bound_grid.moves`); resharding
  inside a domain is free;
* of plans in the set that differ in free knobs alone the best counts at every instant: turning costs nothing;
* relays cost no egress, and those that compared policies chose share no link;
* GPUs never fail and compute runs at nominal speed. The first plan is free for everyone.

A world with jitter also draws iterations shorter than nominal: there the bound holds on average only. The
event engine of the world paces iterations differently by up to a per cent (spec 3.5): compare with the kernel
engine.

Where a space is small enough all its plans are priced against the path (`policy.bound_pricing`): those that
could improve it join the candidates, and `ceiling_tokens` is what no sequence of plans of the space and the
candidates exceeds.

Static bound: the best single plan in hindsight with the job's own knobs and direct links, over every order x
shared sizes x cuts where the sieves of `policy.bound_static` make that affordable, else over the plans of the
dynamic bound.

`exact`: the path's plans are all that there are at default placement and those knobs (spaces of up to
`WHOLE_SPACE` plans), relays but for the choice named above; else they are candidates: a policy with a better
plan for some stretch that no search and no compared policy found could be above, too. `static_exact`: nothing
in the space of the static bound, at the same knobs, beats its plan, alone.

Local SGD trades quality for communication by a factor that is an estimate (`twin.replicas`), so the same
bound over the other plans alone stands beside it: `synchronous_tokens`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_ns
from policy.bound import capacity
from policy.bound.time_grid import Grid, grid, moves
from policy.bound.best_path import Leg, best_path
from policy.bound.candidate_plans import Family, Pool, best_of, stretches
from policy.bound.pricing import price, space_of
from policy.bound.best_fixed_plan import Fixed, best_fixed, every_plan
from policy.control.horizon import egress_usd, per_iteration
from twin.estimate.resource_use import open_links
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.traces.wan_trace import WanTrace

Float = NDArray[np.float64]
WHOLE_SPACE = 400
"""Plans up to which every one there is goes into the path search."""
FIXED, EACH = 60, 6
"""Families kept for the path: the best over the window, and over each of its parts."""
ROUNDS = 3
"""Times that plans around the path are added."""
PRICED = 1_000_000
"""Plans up to which a space is priced: three domains of four GPUs. The 157 million of four domains of 16 take
minutes."""
ANY = 2**62
"""More plans than any space has."""
ROUNDING = 1e-9
"""Relative allowance for times that the world rounds to nanoseconds."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What knowing the future is worth. Iterations are fractional; tokens belong to them.

    `timeline` is the path: at `ns` work begins under the plan. `candidates` plans were put on paths,
    `enumerated` were covered by the static bound. `utilisation` (mean compute seconds of the active domains
    over the window) and `egress_usd` (iterations and moves) are those of the path. `synchronous_tokens`: the
    most without local SGD. `ceiling_tokens`: what is proven of all sequences without local SGD, where it was.
    `capacity_tokens`: what all GPUs train that always compute (`policy.capacity`).
    """

    tokens: float
    iterations: float
    static_tokens: float
    static_plan: Plan
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

    def regret(self, tokens: float, *, local_sgd: bool) -> float | None:
        """Share of the bound's tokens that was not trained; only runs with local SGD are held to what it
        could reach."""
        most = self.tokens if local_sgd else self.synchronous_tokens
        return 1 - tokens / most if most else None


def uses_local_sgd(plan: Plan) -> bool:
    """Whether replicas take several steps between exchanges."""
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
    """The bound for a world: `wan` is its truth, `used_plans` all plans that any compared policy used. With
    `copied_ahead` layers move beside training, and a move costs its restart alone. Spaces of up to `priced`
    plans are priced.

    Raises:
        InfeasibleError: no plan fits the model.
    """

    def over(plans: Sequence[Plan], priced: int) -> Bound:
        return _over(estimator, wan, decision_times_ns, restart_s, plans, copied_ahead, priced, progress)

    others = [plan for plan in used_plans if not uses_local_sgd(plan)]
    alone = over(others, priced)
    if len(others) == len(used_plans):
        return alone
    found = over([*used_plans, *(plan for _, plan in alone.timeline)], 0)
    return replace(
        found, tokens=max(found.tokens, alone.tokens), synchronous_tokens=alone.tokens,
        ceiling_tokens=alone.ceiling_tokens,
    )  # fmt: skip


def _over(
    estimator: Estimator, wan: WanTrace, decision_times_ns: Sequence[int], restart_s: float,
    used_plans: Sequence[Plan], copied_ahead: bool, priced: int, progress: Progress,
) -> Bound:  # fmt: skip
    """The bound with these plans among its candidates."""
    made = grid(wan, decision_times_ns, restart_s)
    pool = Pool(estimator, made)
    pool.add(used_plans)
    space = every_plan(estimator, WHOLE_SPACE)
    pool.add(space)
    if not space:
        for first, last in stretches(made):
            pool.add(pool.around(first, last))
    if not pool.families:
        raise InfeasibleError(f"no plan fits {estimator.job.model.name} into the cluster: there is no bound")
    fixed = best_fixed(estimator, made, pool.best())
    pool.add([fixed.plan])
    paths = _Paths(pool, [*used_plans, *space], restart_s, copied_ahead)
    if space:
        return _described(paths, fixed, exact=True, ceiling=paths.value)
    paths.improve()
    return _described(paths, fixed, exact=False, ceiling=paths.price(priced, progress))


class _Paths:
    """The best path over a growing set of families."""

    def __init__(self, pool: Pool, keep: Sequence[Plan], restart_s: float, copied_ahead: bool) -> None:
        self.pool, self.restart_s, self.keep = pool, restart_s, set(keep)
        self.copied_ahead = copied_ahead
        self.value = 0.0
        self.legs: list[Leg] = []
        self.on_leg: list[Family] = []
        self.candidates = 0
        self._find()

    def improve(self) -> None:
        """Add plans that are good for the links of each leg, until that gains nothing."""
        for _ in range(ROUNDS):
            before, made = self.value, self.pool.made
            for leg, family in zip(self.legs, self.on_leg, strict=True):
                first, last = np.searchsorted(made.edges_s, [leg.start_s, leg.end_s]).tolist()
                first = min(first, made.slots - 1)  # a leg may begin where the window ends
                found = self.pool.around(first, max(last, first + 1), family.plan, top=EACH)
                self.pool.add(found)
                self.keep.update([*found, family.plan])
            self._find()
            if self.value <= before * (1 + 1e-6):
                return

    def price(self, most_plans: int, progress: Progress) -> float | None:
        """Add plans of the whole space, of up to so many, that could be worth it; the ceiling in iterations,
        where that is proven."""
        shapes = space_of(self.pool.estimator, most_plans)
        if not shapes:
            return None
        self._add_plain()
        rate = np.stack([family.rate for family in self._chosen()])
        found = price(self.pool.estimator, self.pool.made, self.restart_s, rate, shapes, progress)
        if found.plans:
            self.pool.add(found.plans)
            self.keep.update([*found.plans, *(family.plan for family in self.on_leg)])
            self._find()
        return found.ceiling

    def _add_plain(self) -> None:
        """Give every family the plan with the job's own knobs: the space has it, turning to it is free."""
        estimator = self.pool.estimator
        job = estimator.job
        plain = [
            replace(
                family.plan, routes=(), schedule=job.schedule, extra_warmup=job.extra_warmup, p2p=job.p2p,
                chunks=job.chunks,
            )
            for family in self._chosen()
            if family.plan.sync is None
        ]  # fmt: skip
        self.pool.add(plan for plan in plain if not estimator.problems(plan))

    def _chosen(self) -> list[Family]:
        """The families that are worth a place on a path now."""
        return self.pool.deepen(best_of(self.pool, self.keep, FIXED, EACH))

    def _find(self) -> None:
        families = self._chosen()
        rate = np.stack([family.rate for family in families], axis=1)
        made = self.pool.made
        costs = moves(self.pool.estimator, [family.plan for family in families], made)
        floor = max(self.value, float((made.lengths_s @ rate).max()))
        self.value, self.legs = best_path(
            made.edges_s,
            rate,
            costs.block,
            costs.start,
            costs.entry,
            np.zeros_like(costs.table) if self.copied_ahead else costs.table,
            restart_s=self.restart_s,
            floor=floor,
        )
        self.on_leg = [families[leg.plan] for leg in self.legs]
        self.candidates = sum(len(family.plans) for family in families)


def _described(paths: _Paths, fixed: Fixed, *, exact: bool, ceiling: float | None) -> Bound:
    """Tokens, money and utilisation of the path found."""
    estimator, made = paths.pool.estimator, paths.pool.made
    usd = busy_s = 0.0
    for n, (leg, family) in enumerate(zip(paths.legs, paths.on_leg, strict=True)):
        done = _done(made, family.rate, leg)
        each_s, each_usd = per_iteration(estimator, family.plan, None)
        run = done * estimator.tokens_per_iteration / estimator.tokens(family.plan)
        usd, busy_s = usd + run * each_usd, busy_s + run * each_s
        if n:
            moved = estimator.move(paths.on_leg[n - 1].plan, family.plan, open_links(estimator.cluster.size))
            usd += egress_usd(estimator, moved.bytes)
    per_iteration_tokens = estimator.tokens_per_iteration * (1 + ROUNDING)
    return Bound(
        tokens=paths.value * per_iteration_tokens,
        iterations=paths.value,
        static_tokens=fixed.iterations * per_iteration_tokens,
        static_plan=fixed.plan,
        timeline=tuple((to_ns(leg.start_s), f.plan) for leg, f in zip(paths.legs, paths.on_leg, strict=True)),
        candidates=paths.candidates,
        enumerated=fixed.enumerated,
        exact=exact,
        static_exact=fixed.exact,
        egress_usd=usd,
        utilisation=busy_s / float(made.edges_s[-1]),
        synchronous_tokens=paths.value * per_iteration_tokens,
        ceiling_tokens=None if ceiling is None else ceiling * per_iteration_tokens,
        capacity_tokens=capacity.tokens_per_s(estimator) * float(made.edges_s[-1]),
    )


def _done(made: Grid, rate: Float, leg: Leg) -> float:
    """Iterations that a family does on a leg."""
    start, end = (
        np.clip(made.edges_s[:-1], leg.start_s, leg.end_s),
        np.clip(made.edges_s[1:], leg.start_s, leg.end_s),
    )
    return float(rate @ (end - start))
