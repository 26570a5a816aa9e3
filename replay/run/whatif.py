"""What if another policy had decided, or a link been another one: a run again, from its start or its middle.

A branch is a run of its own in the store: its header names the run that it leaves and the decision at which
it does, its log holds the decisions before that one as they were made. So it is audited, queried and shown
like any other run, and it needs the other run no longer.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest.core.errors import InputError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from replay.run import branching, runner
from replay.metrics import paired_comparison as judge
from replay.store import run_index as runs
from replay.log.events import Event, canonical
from replay.store.run_header import from_payload
from replay.metrics.paired_comparison import Verdict
from replay.metrics.kpis import Kpis, of_events
from replay.log.run_log import RunReader
from replay.store.decision_codec import plan_from_json, plan_to_json
from replay.store.event_sinks import Record
from twin.traces import perturbation as perturb
from twin.settings.disturbances import LinkChange

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
        """All fields by name."""
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
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    base_branch: Json | None  # where the base leaves another run, if it is a what-if itself
    base_links: tuple[str, ...]  # how the base's links are other ones than measured, in words

    @property
    def differences(self) -> dict[str, float | None]:
        """The other run's figure less the base's, for every key figure; None where one has no value."""
        base, other = self.base.to_json(), self.other.to_json()
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
    """How much more; sums of the same parts in another order are equal."""
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
) -> WhatIf:
    """Run `policy` in the world of a finished run, after that run's own first `from_decision` decisions.

    The policy is that of the run unless named; with `links` the world is another one in these. With `until_s`
    both runs are taken to that time only. Samples that the data set has got since the run are passed over.

    Raises:
        NotFoundError: no such run, policy checkpoint or data set. UsageError: no such policy or decision, or
        a time outside the run. InputError: the run is not finished, or its world cannot be made again.
        InfeasibleError: the policy cannot start. DamageError: the log is damaged, or this code does not
        reproduce what the decisions were made of.
    """
    reader = RunReader(runs.folder(store, run_id))
    if not reader.finished:
        raise InputError(f"{run_id}: the run is not finished; `twin replay --resume {run_id}` goes on")
    played = from_payload(reader.header())
    header = branching.branch(
        store, played, run_id, policy or played.policy, checkpoint, from_decision, until_s
    )
    if links:
        if from_decision:
            raise UsageError("--link changes what was decided on: use its @SECONDS, not --from-decision")
        header = branching.elsewhere(store, header, links)
    stage, notes = branching.staged(store, played, header, reader.events())
    name = runs.new_id(store, header.scenario().name, header.policy, header.seed, header.config_digest)
    record = Record(runs.folder(store, name))
    try:
        runner.play(stage, record, progress)
    finally:
        record.close()
    end_ns = int(header.world["end_ns"])
    base = list(reader.events())
    if until_s is not None:
        base = branching.cut(store, played, base, end_ns, progress)
    other = list(RunReader(runs.folder(store, name)).events())
    found = paired(run_id, base, name, other, end_ns)
    modelling = tuple(perturb.told(change, end_ns) for change in links)
    return replace(found, from_decision=from_decision, until_s=until_s, notes=(*modelling, *notes))


def pair(store: Path, base_run: str, run_id: str) -> WhatIf:
    """Two finished runs of the store beside each other, whatever they were made for.

    Raises:
        NotFoundError: no such run. InputError: one is not finished, or their worlds differ in length.
    """
    both = [RunReader(runs.folder(store, run)) for run in (base_run, run_id)]
    headers = [from_payload(reader.header()) for reader in both]
    unfinished = [reader.run_dir.name for reader in both if not reader.finished]
    if unfinished:
        raise InputError(f"{unfinished[0]}: the run is not finished")
    ends = [int(header.world["end_ns"]) for header in headers]
    if ends[0] != ends[1]:
        raise InputError(
            f"{base_run} and {run_id} last {ends[0] / NS_PER_S:g} s and {ends[1] / NS_PER_S:g} s: "
            "only runs of the same length are set beside each other"
        )
    found = paired(base_run, list(both[0].events()), run_id, list(both[1].events()), ends[0])
    same = [canonical({**header.world, "engine": header.engine}) for header in headers]
    return found if same[0] == same[1] else replace(found, notes=("the two runs are of different worlds",))


def paired(base_run: str, base: list[Event], run_id: str, other: list[Event], end_ns: int) -> WhatIf:
    """The comparison of two runs from their events."""
    ours, theirs = (from_payload(events[0].payload) for events in (base, other))
    return WhatIf(
        base_run=base_run,
        run_id=run_id,
        policy=theirs.policy,
        base_policy=ours.policy,
        from_decision=0,
        until_s=None,
        divergence=divergence(base, other),
        base=of_events(base),
        other=of_events(other),
        verdicts=judge.judge([judge.blocks_of(base, end_ns)], [judge.blocks_of(other, end_ns)]),
        notes=(),
        base_branch=None if ours.branch is None else dict(ours.branch),
        base_links=tuple(perturb.told(change, end_ns) for change in ours.scenario().link_changes),
    )


def divergence(base: Iterable[Event], other: Iterable[Event]) -> Divergence | None:
    """The first decision after which the plans differ; None if they never do."""
    ours = (event for event in base if event.type == "decided")
    theirs = (event for event in other if event.type == "decided")
    for one, two in zip(ours, theirs, strict=False):
        plans = [plan_after(event) for event in (one, two)]
        if canonical(plans[0]) != canonical(plans[1]):
            return Divergence(
                one.payload["number"],
                one.sim_ns / NS_PER_S,
                one.payload["observation"]["trigger"],
                _text(plans[0]),
                one.payload["reason"],
                _text(plans[1]),
                two.payload["reason"],
            )
    return None


def plan_after(decided: Event) -> Json | None:
    """The plan in force after a decision."""
    answer = decided.payload["plan"] or decided.payload["observation"]["plan"]
    return plan_to_json(plan_from_json(answer))


def _text(plan: Json | None) -> str:
    return "" if plan is None else str(plan_from_json(plan))
