"""What-ifs: a logged run with another policy or changed links, from its start or from a decision on.

A branch is a run of its own in the store: its header names the run and the decision at which it branches off,
and its log holds the earlier decisions as they were made. So it is audited, queried and shown like any other
run, and does not need the other run any more.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest.core.durable import DISK
from ingest.core.errors import InputError, TwinError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from replay.log.events import Event, canonical
from replay.log.fold import Fold
from replay.log.run_log import RunReader
from replay.metrics import paired_comparison
from replay.metrics.kpis import Kpis, of_events
from replay.metrics.paired_comparison import PairedDifference
from replay.run import branching, runner
from replay.store import run_index
from replay.store.decision_codec import plan_from_json, plan_to_json
from replay.store.event_sinks import LogSink
from replay.store.run_header import Header, from_payload, unfinished
from replay.store.run_kind import require_plans
from twin.core.plan_text import plan_text, with_names
from twin.settings.disturbances import LinkChange
from twin.traces import perturbation

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first decision after which the two runs do not have the same plan; plans as text, "" for none."""

    number: int
    at_s: float
    trigger: str
    base: str
    base_reason: str
    other: str
    other_reason: str

    def to_json(self) -> Json:
        """Returns all fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Two runs of one world; `verdicts` are paired over blocks of time, positive: the other is better."""

    base_run: str
    run_id: str
    policy: str
    base_policy: str
    from_decision: int
    until_s: float | None
    divergence: Divergence | None
    base: Kpis
    other: Kpis
    verdicts: tuple[PairedDifference, ...]
    notes: tuple[str, ...]
    base_branch: Json | None  # of a base that is a what-if itself
    base_links: tuple[str, ...]  # changes of the base's links, in words

    @property
    def differences(self) -> dict[str, float | None]:
        """Other run less base, for every key figure; None where one has no value."""
        base, other = self.base.numbers(), self.other.numbers()
        return {name: _difference(base[name], other[name]) for name in base}

    def to_json(self) -> Json:
        """The object of `twin replay --run RUN --policy OTHER --json`."""
        return {
            "schema": "twin.whatif/1",
            "base_run": self.base_run,
            "run": self.run_id,
            "base_policy": self.base_policy,
            "policy": self.policy,
            "from_decision": self.from_decision,
            "until_s": self.until_s,
            "divergence": None if self.divergence is None else self.divergence.to_json(),
            "base": self.base.to_json(),
            "other": self.other.to_json(),
            "differences": self.differences,
            "verdicts": [{"kpi": v.kpi, "mean": v.mean, "low": v.low, "high": v.high} for v in self.verdicts],
            "notes": list(self.notes),
            "base_branch": self.base_branch,
            "base_links": list(self.base_links),
        }


def _difference(base: float | None, other: float | None) -> float | None:
    """Returns other - base; 0 where they differ by rounding of sums only."""
    if base is None or other is None:
        return None
    return 0.0 if base != other and math.isclose(base, other, rel_tol=1e-12) else other - base


def what_if(
    store: Path,
    run_id: str,
    policy: str | None = None,
    *,
    links: Sequence[LinkChange] = (),
    checkpoint: str | None = None,
    from_decision: int = 0,
    until_s: float | None = None,
    progress: Progress = SILENT,
    watch: Fold | None = None,
) -> WhatIf:
    """Runs `policy` in the world of a finished run, after that run's own first `from_decision` decisions.

    The policy is that of the run by default; `links` change the world. With `until_s` both runs end at that
    time. Samples ingested since the run are left out. `watch` is shown every event of the new run.

    Raises:
        NotFoundError: no such run, policy checkpoint or data set. UsageError: no such policy or decision, or
        a time outside the run. InputError: the run is not finished, or its world cannot be reconstructed.
        InfeasibleError: the policy cannot start. DamageError: the log is damaged, or this code does not
        reproduce the views of the decisions.
    """
    reader = RunReader(run_index.folder(store, run_id))
    base_header = from_payload(reader.header())
    require_plans(run_id, base_header, "a what-if")
    if not reader.finished:
        raise InputError(unfinished(base_header, run_id))
    header = branching.branch(
        store, base_header, run_id, policy or base_header.policy, checkpoint, from_decision, until_s
    )
    if links:
        if from_decision:
            raise UsageError("--link changes what was decided on: use its @SECONDS, not --from-decision")
        header = branching.with_links(store, header, links)
    prepared, notes = branching.prepare_branch(store, base_header, header, reader.events())
    name = run_index.new_id(store, header.scenario().name, header.policy, header.seed, header.config_digest)
    DISK.foretell((run_index.folder(store, name), f"log of a what-if of {run_id}"))
    log = LogSink(run_index.folder(store, name))
    with runner.resumable(store, name):
        try:
            runner.simulate(prepared, log, progress, watch)
        finally:
            log.close()
    end_ns = int(header.world["end_ns"])
    base = list(reader.events())
    if until_s is not None:
        base = branching.truncated(store, base_header, base, end_ns, progress)
    other = list(RunReader(run_index.folder(store, name)).events())
    found = paired(run_id, base, name, other, end_ns)
    modelling = tuple(perturbation.describe_change(change, end_ns) for change in links)
    return replace(found, from_decision=from_decision, until_s=until_s, notes=(*modelling, *notes))


def parent_of(store: Path, header: Header) -> Header | None:
    """Returns the header of the run that a what-if branches off; None where that run cannot be read."""
    assert header.branch is not None, "a what-if"
    try:
        return from_payload(RunReader(run_index.folder(store, str(header.branch["run"]))).header())
    except TwinError:
        return None


def changes(header: Header, parent: Header | None) -> tuple[str, ...]:
    """Returns what a what-if changes against its parent, in words: policy, checkpoint, the decision from
    which on, links, end. Without a header of the parent all changed links are named."""
    assert header.branch is not None, "a what-if"
    found = []
    if parent is None:
        found.append(f"policy {header.policy}")
    elif parent.policy != header.policy:
        found.append(f"policy {header.policy} in place of {parent.policy}")
    elif parent.checkpoint != header.checkpoint and header.checkpoint is not None:
        found.append(f"checkpoint {header.checkpoint[:8]} in place of {(parent.checkpoint or 'none')[:8]}")
    if decision := int(header.branch["decision"]):
        found.append(f"from decision {decision} on")
    before = () if parent is None else parent.scenario().link_changes
    for change in header.scenario().link_changes[len(before) :]:
        found.append(perturbation.describe_change(change).removeprefix("what if "))
    if "window_ns" in header.branch and (parent is None or parent.world["end_ns"] != header.world["end_ns"]):
        found.append(f"up to {int(header.world['end_ns']) / NS_PER_S:g} s")
    return tuple(found)


def beside_parent(store: Path, run_id: str, progress: Progress = SILENT) -> WhatIf | None:
    """Compares a finished what-if with the run that it branches off, up to the end of the what-if; None where
    that run is not in the store any more, is not finished, or cannot be computed again to an earlier end."""
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    if header.branch is None or not reader.finished:
        return None
    base_run, end_ns = str(header.branch["run"]), int(header.world["end_ns"])
    try:
        stored = RunReader(run_index.folder(store, base_run))
        base_header = from_payload(stored.header())
        if not stored.finished:
            return None
        base = list(stored.events())
        if int(base_header.world["end_ns"]) != end_ns:
            base = branching.truncated(store, base_header, base, end_ns, progress)
    except TwinError:
        return None
    found = paired(base_run, base, run_id, list(reader.events()), end_ns)
    return replace(found, from_decision=int(header.branch["decision"]))


def pair(store: Path, base_run: str, run_id: str) -> WhatIf:
    """Compares two finished runs of the store.

    Raises:
        NotFoundError: no such run. InputError: one is not finished, or their worlds differ in length.
    """
    both = [RunReader(run_index.folder(store, run)) for run in (base_run, run_id)]
    headers = [from_payload(reader.header()) for reader in both]
    for run, header in zip((base_run, run_id), headers, strict=True):
        require_plans(run, header, "the comparison of two runs")
    unfinished = [reader.run_dir.name for reader in both if not reader.finished]
    if unfinished:
        raise InputError(f"{unfinished[0]}: the run is not finished")
    ends = [int(header.world["end_ns"]) for header in headers]
    if ends[0] != ends[1]:
        raise InputError(
            f"{base_run} and {run_id} last {ends[0] / NS_PER_S:g} s and {ends[1] / NS_PER_S:g} s: "
            "only runs of the same length are compared; take two of one window"
        )
    found = paired(base_run, list(both[0].events()), run_id, list(both[1].events()), ends[0])
    same = [canonical({**header.world, "engine": header.engine}) for header in headers]
    return found if same[0] == same[1] else replace(found, notes=("the two runs are of different worlds",))


def paired(base_run: str, base: list[Event], run_id: str, other: list[Event], end_ns: int) -> WhatIf:
    """Compares two runs from their events."""
    own, others = (from_payload(events[0].payload) for events in (base, other))
    return WhatIf(
        base_run=base_run,
        run_id=run_id,
        policy=others.policy,
        base_policy=own.policy,
        from_decision=0,
        until_s=None,
        divergence=divergence(base, other, own.world["scenario"]),
        base=of_events(base),
        other=of_events(other),
        verdicts=paired_comparison.judge(
            [paired_comparison.blocks_of(base, end_ns)], [paired_comparison.blocks_of(other, end_ns)]
        ),
        notes=(),
        base_branch=None if own.branch is None else dict(own.branch),
        base_links=tuple(
            perturbation.describe_change(change, end_ns) for change in own.scenario().link_changes
        ),
    )


def divergence(base: Iterable[Event], other: Iterable[Event], scenario: Json) -> Divergence | None:
    """Returns the first decision after which the plans differ, with the names of sites; None if they never
    do."""
    names = [domain["name"] for domain in scenario["cluster"]["domains"]]
    own = (event for event in base if event.type == "decided")
    others = (event for event in other if event.type == "decided")
    for one, two in zip(own, others, strict=False):
        plans = [plan_after(event) for event in (one, two)]
        if canonical(plans[0]) != canonical(plans[1]):
            return Divergence(
                one.payload["number"],
                one.sim_ns / NS_PER_S,
                one.payload["observation"]["trigger"],
                _text(plans[0], names),
                with_names(one.payload["reason"], names),
                _text(plans[1], names),
                with_names(two.payload["reason"], names),
            )
    return None


def plan_after(decided: Event) -> Json | None:
    """Returns the plan in force after a decision, as JSON."""
    plan = decided.payload["plan"] or decided.payload["observation"]["plan"]
    return plan_to_json(plan_from_json(plan))


def _text(plan: Json | None, names: Sequence[str]) -> str:
    return "" if plan is None else plan_text(plan, names)
