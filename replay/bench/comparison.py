"""Policies in one world, beside the bound of who knows the future: the table that people look at."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest.core.errors import InfeasibleError, NotFoundError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from policy.bound import bound as clairvoyance
from policy.core import registry
from policy.bound.bound import PRICED, Bound, uses_local_sgd
from replay.store import world_reconstruction as past_world, run_index as runs
from replay.run import runner
from replay.bench.bench_world import World
from replay.log.events import Event, canonical
from replay.store.run_header import Header, from_payload
from replay.metrics.kpis import Kpis
from replay.log.run_log import RunReader
from replay.store.decision_codec import plan_from_json
from twin.core.plan import Plan
from twin.scenario.prepare import Setup
from twin.settings.scenario_file import Weights

Json = dict[str, Any]
DEFAULT_POLICIES = ("static", "single", "greedy", "mpc", "hippo")


@dataclass(frozen=True, slots=True)
class Row:
    """One policy's outcome. Ratios are shares (0.25 = 25 %); None where there is nothing to compare with."""

    policy: str
    run_id: str | None
    problem: str | None  # why the policy could not run
    kpis: Kpis | None
    reduction_vs_static: float | None = None  # of time per token; positive = faster than static
    reduction_vs_single: float | None = None
    regret: float | None = None  # 1 - tokens / tokens of the dynamic bound, that of its kind of training
    regret_static: float | None = None  # the same against the best fixed plan in hindsight; may be negative

    def to_json(self) -> Json:
        """All fields by name."""
        return {
            "policy": self.policy,
            "run": self.run_id,
            "problem": self.problem,
            "kpis": None if self.kpis is None else self.kpis.to_json(),
            "reduction_vs_static": self.reduction_vs_static,
            "reduction_vs_single": self.reduction_vs_single,
            "regret": self.regret,
            "regret_static": self.regret_static,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of one world, and the bound above them."""

    scenario: str
    dataset: str
    window: str
    seed: int
    wall_s: float
    note: str
    weights: Weights
    rows: tuple[Row, ...]
    bound: Bound | None

    def to_json(self) -> Json:
        """The object of `twin bench --json`."""
        return {
            "schema": "twin.compare/1",
            "scenario": self.scenario,
            "dataset": self.dataset,
            "window": self.window,
            "seed": self.seed,
            "wall_s": self.wall_s,
            "note": self.note,
            "weights": list(self.weights.vector),
            "rows": [row.to_json() for row in self.rows],
            "bound": None if self.bound is None else bound_to_json(self.bound, self.wall_s),
        }


def bound_to_json(bound: Bound, wall_s: float) -> Json:
    """The bound in the words of the rows."""
    return {
        "tokens": bound.tokens,
        "synchronous_tokens": bound.synchronous_tokens,
        "time_per_token_s": wall_s / bound.tokens if bound.tokens else None,
        "iterations": bound.iterations,
        "static_tokens": bound.static_tokens,
        "static_plan": str(bound.static_plan),
        "ceiling_tokens": bound.ceiling_tokens,
        "capacity_tokens": bound.capacity_tokens,
        "moves": max(0, len(bound.timeline) - 1),
        "candidates": bound.candidates,
        "exact": bound.exact,
        "egress_usd": bound.egress_usd,
        "utilisation": bound.utilisation,
    }


def compare(
    store: Path,
    policies: Sequence[str],
    world: World,
    *,
    checkpoint: str | None = None,
    with_bound: bool = True,
    priced: int = PRICED,
    progress: Progress = SILENT,
) -> Comparison:
    """Run every policy in the same world, each as a run of the store, with the clairvoyant bound beside them;
    spaces of up to `priced` plans are priced for it.

    A policy that cannot place the model, or has no checkpoint, is a row with the reason.
    """
    setup = world.prepare(store)
    rows = []
    for policy in policies:
        try:
            done = world.run(store, policy, checkpoint, progress=progress)
            rows.append(Row(policy, done.run_id, None, done.kpis))
        except (InfeasibleError, NotFoundError) as error:
            rows.append(Row(policy, None, str(error), None))
    return of_rows(store, setup, rows, with_bound=with_bound, priced=priced, progress=progress)


def of_rows(
    store: Path,
    setup: Setup,
    rows: Sequence[Row],
    *,
    with_bound: bool = True,
    priced: int = PRICED,
    progress: Progress = SILENT,
) -> Comparison:
    """Put finished runs of one world into relation with each other and with the bound."""
    logged = [row.run_id for row in rows if row.run_id is not None]
    bound = None
    several = setup.scenario.several_jobs
    if with_bound and logged and not several:
        progress.start(None, "clairvoyant bound")
        bound = best_possible(store, setup, logged, priced, progress)
    by_policy = {row.policy: row.kpis for row in rows}
    related = tuple(_related(store, row, by_policy, bound) for row in rows)
    return Comparison(
        scenario=setup.scenario.name,
        dataset=setup.dataset,
        window=setup.window,
        seed=setup.seed,
        wall_s=setup.wan.end_ns / NS_PER_S,
        note=setup.wan.note + ("; several jobs, for which no bound is known" if several else ""),
        weights=setup.scenario.weights,
        rows=related,
        bound=bound,
    )


def beside(store: Path, run_id: str, *, progress: Progress = SILENT) -> Comparison:
    """The finished runs of the store in the same world as `run_id`, the newest of each policy, and the bound.

    Raises:
        NotFoundError: no such run, or its data set has left the lake. DamageError: its log is damaged.
    """
    header = header_of(store, run_id)
    newest: dict[str, str] = {}
    for other in runs.by_start(store, runs.all_ids(store)):
        if RunReader(runs.folder(store, other)).finished and _same_world(header_of(store, other), header):
            newest[header_of(store, other).policy] = other
    newest[header.policy] = run_id
    played = [(policy, newest[policy]) for policy in registry.names() if policy in newest]
    rows = [Row(policy, run, None, runner.result(store, run).kpis) for policy, run in played]
    setup = past_world.prepare(store, header)
    return of_rows(store, setup, rows, progress=progress)


def header_of(store: Path, run_id: str) -> Header:
    """The header of a logged run."""
    return from_payload(RunReader(runs.folder(store, run_id)).header())


def _same_world(one: Header, other: Header) -> bool:
    if one.branch is not None and int(one.branch["decision"]) > 0:
        return False  # two policies decided in it
    return canonical(one.world) == canonical(other.world) and one.engine == other.engine


class Used:
    """The plans that runs used and the times at which they decided, from their events."""

    def __init__(self) -> None:
        self.times: set[int] = {0}
        self.plans: dict[Plan, None] = {}  # ordered and distinct

    def watched(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, taken note of."""
        for event in events:
            if event.type == "decided":
                self.times.add(event.sim_ns)
            elif event.type == "plan_applied":
                plan = plan_from_json(event.payload["plan"])
                assert plan is not None
                self.plans[plan] = None
            yield event

    @property
    def local_sgd(self) -> bool:
        """Whether any plan is one of local SGD."""
        return any(uses_local_sgd(plan) for plan in self.plans)

    @classmethod
    def of(cls, store: Path, logged: Sequence[str]) -> "Used":
        """Of the runs that are named."""
        used = cls()
        for run_id in logged:
            for _ in used.watched(RunReader(runs.folder(store, run_id)).events()):
                pass
        return used


def best_possible(
    store: Path, setup: Setup, logged: Sequence[str], priced: int = PRICED, progress: Progress = SILENT
) -> Bound:
    """The clairvoyant bound over the times at which any of these runs decided and the plans that any used."""
    used, moving = Used.of(store, logged), setup.scenario.moving
    return clairvoyance.clairvoyant(
        setup.estimator(),
        setup.wan,
        sorted(used.times),
        restart_s=moving.restart_s,
        used_plans=tuple(used.plans),
        copied_ahead=moving.mode == "pre_copy",
        priced=priced,
        progress=progress,
    )


def _related(store: Path, row: Row, by_policy: dict[str, Kpis | None], bound: Bound | None) -> Row:
    if row.kpis is None or row.run_id is None:
        return row
    local = bound is not None and Used.of(store, [row.run_id]).local_sgd
    return replace(
        row,
        reduction_vs_static=_reduction(row.kpis, by_policy.get("static")),
        reduction_vs_single=_reduction(row.kpis, by_policy.get("single")),
        regret=None if bound is None else bound.regret(row.kpis.tokens, local_sgd=local),
        regret_static=(
            None if bound is None or not bound.static_tokens else 1 - row.kpis.tokens / bound.static_tokens
        ),
    )


def _reduction(own: Kpis, base: Kpis | None) -> float | None:
    if base is None or own.time_per_token_s is None or base.time_per_token_s is None:
        return None
    return 1 - own.time_per_token_s / base.time_per_token_s
