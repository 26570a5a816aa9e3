"""Compares policies in one world with each other and with the clairvoyant bound."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ingest.core.durable import DISK
from ingest.core.errors import InfeasibleError, NotFoundError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from policy.bound import bound as clairvoyance
from policy.bound.bound import PRICED, Bound, uses_local_sgd
from policy.core import registry
from replay.bench.world import BenchWorld
from replay.log.events import Event, Json, canonical
from replay.log.fold import Fold, fold
from replay.log.run_log import RunReader
from replay.metrics.kpis import Kpis
from replay.run import runner
from replay.store import run_index, world_reconstruction
from replay.store.decision_codec import plan_in_force
from replay.store.run_header import Header, from_payload
from replay.store.run_kind import require_plans
from twin.core.plan import Plan
from twin.scenario.prepare import PreparedScenario
from twin.settings.scenario_file import ObjectiveWeights

DEFAULT_POLICIES = ("static", "single", "greedy", "mpc", "hippo")


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One policy's outcome. Ratios are shares (0.25 = 25 %); None where there is nothing to compare with."""

    policy: str
    run_id: str | None
    problem: str | None  # why the policy could not run
    kpis: Kpis | None
    reduction_vs_static: float | None = None  # of time per token; positive = faster than static
    reduction_vs_single: float | None = None
    regret: float | None = None  # 1 - tokens / tokens of the dynamic bound, that of its kind of training
    regret_kept: float | None = None  # the same against the best plan never left, knobs turned; < 0: better
    regret_static: float | None = None  # the same, of that plan with the job's own knobs and direct links

    def to_json(self) -> Json:
        """Returns all fields by name."""
        return {
            "policy": self.policy,
            "run": self.run_id,
            "problem": self.problem,
            "kpis": None if self.kpis is None else self.kpis.to_json(),
            "reduction_vs_static": self.reduction_vs_static,
            "reduction_vs_single": self.reduction_vs_single,
            "regret": self.regret,
            "regret_kept": self.regret_kept,
            "regret_static": self.regret_static,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All policies of one world, and their bound."""

    scenario: str
    dataset: str
    window: str
    seed: int
    wall_s: float
    note: str
    weights: ObjectiveWeights
    rows: tuple[ComparisonRow, ...]
    bound: Bound | None

    def to_json(self) -> Json:
        """Returns the object of `twin bench --json` for one world."""
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
    """Returns the bound with the field names of the rows."""
    return {
        "tokens": bound.tokens,
        "synchronous_tokens": bound.synchronous_tokens,
        "time_per_token_s": wall_s / bound.tokens if bound.tokens else None,
        "iterations": bound.iterations,
        "kept_tokens": bound.kept_tokens,
        "kept_plan": str(bound.kept_plan),
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
    world: BenchWorld,
    *,
    checkpoint: str | None = None,
    with_bound: bool = True,
    priced: int = PRICED,
    progress: Progress = SILENT,
) -> Comparison:
    """Runs every policy in the same world, each as a run of the store, and computes the clairvoyant bound.

    Plan spaces of up to `priced` plans are enumerated for it. A policy that cannot place the model, or has no
    checkpoint, gets a row with the reason.
    """
    setup = world.prepare(store)
    runs = run_index.folder(store, "NEW").parent
    DISK.foretell(*((runs, f"log of a run of {policy} in {world.scenario.name}") for policy in policies))
    rows = []
    for policy in policies:
        try:
            done = world.run(store, policy, checkpoint, progress=progress)
            rows.append(ComparisonRow(policy, done.run_id, None, done.kpis))
        except (InfeasibleError, NotFoundError) as error:
            rows.append(ComparisonRow(policy, None, str(error), None))
    return relate_to_bound(store, setup, rows, with_bound=with_bound, priced=priced, progress=progress)


def relate_to_bound(
    store: Path,
    setup: PreparedScenario,
    rows: Sequence[ComparisonRow],
    *,
    with_bound: bool = True,
    priced: int = PRICED,
    progress: Progress = SILENT,
) -> Comparison:
    """Relates finished runs of one world to each other and to the bound."""
    run_ids = [row.run_id for row in rows if row.run_id is not None]
    bound = None
    several = setup.scenario.several_jobs
    if with_bound and run_ids and not several:
        progress.start(None, "clairvoyant bound")
        bound = bound_of_runs(store, setup, run_ids, priced, progress)
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


def stored_runs_of_world(store: Path, run_id: str, *, progress: Progress = SILENT) -> Comparison:
    """Compares the finished runs of the store in the world of `run_id`, the newest of each policy.

    Raises:
        NotFoundError: no such run, or its data set has left the lake. DamageError: its log is damaged.
    """
    header = header_of(store, run_id)
    require_plans(run_id, header, "--compare")
    newest: dict[str, str] = {}
    for other in run_index.by_start(store, run_index.all_ids(store)):
        if RunReader(run_index.folder(store, other)).finished and _same_world(
            header_of(store, other), header
        ):
            newest[header_of(store, other).policy] = other
    newest[header.policy] = run_id
    runs = [(policy, newest[policy]) for policy in registry.names() if policy in newest]
    rows = [ComparisonRow(policy, run, None, runner.result(store, run).kpis) for policy, run in runs]
    setup = world_reconstruction.prepare(store, header)
    return relate_to_bound(store, setup, rows, progress=progress)


def of_runs(store: Path, run_ids: Sequence[str], *, with_bound: bool = True) -> Comparison:
    """Compares finished runs of one world and the bound; rows in the order of `run_ids`.

    Raises:
        UsageError: the runs are of different worlds. NotFoundError: one is not finished.
    """
    header = header_of(store, run_ids[0])
    for other in run_ids[1:]:
        if not _same_world(header_of(store, other), header):
            raise UsageError(
                f"{other} ran in another world than {run_ids[0]}: scenario, data set, window, seed and engine"
                " must be equal"
            )
    rows = [
        ComparisonRow(header_of(store, run).policy, run, None, runner.result(store, run).kpis)
        for run in run_ids
    ]
    return relate_to_bound(store, world_reconstruction.prepare(store, header), rows, with_bound=with_bound)


def header_of(store: Path, run_id: str) -> Header:
    """Returns the header of a logged run."""
    return from_payload(RunReader(run_index.folder(store, run_id)).header())


def _same_world(one: Header, other: Header) -> bool:
    if one.branch is not None and int(one.branch["decision"]) > 0:
        return False  # two policies decided in it
    return canonical(one.world) == canonical(other.world) and one.engine == other.engine


class UsedPlans(Fold):
    """Plans that runs used and times of their decisions, from their events."""

    def __init__(self) -> None:
        self.times: set[int] = {0}
        self.plans: dict[Plan, None] = {}  # ordered and distinct

    def watched(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yields the same events, after adding each."""
        for event in events:
            self.add(event)
            yield event

    def _on_decided(self, event: Event, _: Json) -> None:
        self.times.add(event.sim_ns)

    def _on_plan_applied(self, _: Event, applied: Json) -> None:
        self.plans[plan_in_force(applied["plan"])] = None

    @property
    def local_sgd(self) -> bool:
        """True if any plan trains by local SGD."""
        return any(uses_local_sgd(plan) for plan in self.plans)

    @classmethod
    def of(cls, store: Path, run_ids: Sequence[str]) -> "UsedPlans":
        """Returns the plans and times of these runs."""
        used = cls()
        for run_id in run_ids:
            fold(RunReader(run_index.folder(store, run_id)).events(), used)
        return used


def bound_of_runs(
    store: Path,
    setup: PreparedScenario,
    run_ids: Sequence[str],
    priced: int = PRICED,
    progress: Progress = SILENT,
) -> Bound:
    """Returns the clairvoyant bound over the decision times and the plans of these runs."""
    used, moving = UsedPlans.of(store, run_ids), setup.scenario.moving
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


def _related(
    store: Path, row: ComparisonRow, by_policy: dict[str, Kpis | None], bound: Bound | None
) -> ComparisonRow:
    if row.kpis is None or row.run_id is None:
        return row
    local = bound is not None and UsedPlans.of(store, [row.run_id]).local_sgd
    return replace(
        row,
        reduction_vs_static=_reduction(row.kpis, by_policy.get("static")),
        reduction_vs_single=_reduction(row.kpis, by_policy.get("single")),
        regret=None if bound is None else bound.regret(row.kpis.progress_tokens, local_sgd=local),
        regret_kept=None if bound is None else bound.regret_kept(row.kpis.progress_tokens),
        regret_static=(
            None
            if bound is None or not bound.static_tokens
            else 1 - row.kpis.progress_tokens / bound.static_tokens
        ),
    )


def _reduction(own: Kpis, base: Kpis | None) -> float | None:
    if base is None or own.time_per_token_s is None or base.time_per_token_s is None:
        return None
    return 1 - own.time_per_token_s / base.time_per_token_s
