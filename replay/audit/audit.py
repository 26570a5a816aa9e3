"""Audits a run: its files, its accounts, its re-execution, and that no decision depends on the future."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import DamageError, NotFoundError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from policy.core import registry
from replay.audit import explain, logged_decisions, signing
from replay.audit.conservation import Accounts
from replay.audit.logged_decisions import LoggedDecision
from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.run import runner
from replay.run.observed import BrokenMessageError
from replay.store import run_index, world_reconstruction
from replay.store.decision_codec import decision_to_json, digest
from replay.store.event_sinks import Compare, DivergenceError, difference
from replay.store.run_header import QUEUE, from_payload
from twin.scenario.prepare import PreparedScenario
from twin.traces.wan_trace import LinkSeries, WanTrace

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A fault; `check` is chain, signature, conservation, observation, re-execution or look-ahead."""

    check: str
    problem: str

    def __str__(self) -> str:
        return f"{self.check}: {self.problem}"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Findings of an audit, `ok` if there are none; notes are circumstances, not faults."""

    run_id: str
    digest: str | None
    chain_head: str | None
    events: int
    findings: tuple[AuditFinding, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    def to_json(self) -> Json:
        """The object of `twin audit --json`."""
        return {
            "schema": "twin.audit/1",
            "run": self.run_id,
            "ok": self.ok,
            "findings": [{"check": f.check, "problem": f.problem} for f in self.findings],
            "notes": list(self.notes),
            "digest": self.digest,
            "chain_head": self.chain_head,
            "events": self.events,
        }


def audit(
    store: Path,
    run_id: str,
    *,
    chain_head: str | None = None,
    since: int = 0,
    progress: Progress = SILENT,
) -> AuditReport:
    """Checks a run of the store; findings are returned, not raised.

    `chain_head`, kept elsewhere when the run ended, detects a rewritten or shortened history. With `since`
    the whole chain is checked, but only the events from that number on: quick, for a run audited before.

    Raises:
        NotFoundError: no such run. UsageError: no chain head, or no event from `since` on.
    """
    if chain_head is not None and not re.fullmatch("[0-9a-f]{64}", chain_head):
        raise UsageError(f"--chain-head {chain_head!r}: a chain head has 64 digits, each 0 to 9 or a to f")
    reader = RunReader(run_index.folder(store, run_id))
    head = _head(reader)  # before anything is checked: a run that grows is vouched for up to here
    damage = [AuditFinding("chain", str(finding)) for finding in reader.verify(chain_head, since=since)]
    problem = None if damage else signing.contradiction(store, run_id, reader.contents())
    if problem is not None:
        damage = [AuditFinding("signature", problem)]
    if damage:  # a damaged log is not recomputed
        return AuditReport(run_id, None, None, 0, tuple(damage), ())
    if since:
        read = f"events before {since} were not read and nothing was executed again; without --since both are"
        found = reader.contents()
        if since >= found.end:
            raise UsageError(f"--since {since}: the last event of {run_id} is {found.end - 1}")
        return AuditReport(run_id, found.stream, head, found.end - since, (), (read,))
    header = from_payload(reader.header())
    findings = [AuditFinding("observation", problem) for problem in observations(reader.events())]
    notes = [] if reader.finished else ["the run is not finished; what is stored was checked"]
    count = reader.contents().end
    notes += quarantined(reader.events())
    if header.policy in registry.OPERATIONS:
        findings += _of_queue(store, run_id) if header.policy == QUEUE else []
        if header.policy != QUEUE:
            notes.append(f"a log of {header.policy}: it is checked, not executed again")
    else:
        findings += [AuditFinding("conservation", problem) for problem in Accounts().check(reader.events())]
        if header.plan is not None or registry.known(header.policy):
            differing, circumstances = executions(store, reader, progress)
            findings += differing
            notes += circumstances
        else:
            notes.append(f"no policy {header.policy!r} is installed: the log is checked, not executed again")
    return AuditReport(run_id, reader.digest(), head, count, tuple(findings), tuple(notes))


def _head(reader: RunReader) -> str | None:
    """Returns the chain head of a run; None if it is damaged."""
    try:
        return reader.chain_head()
    except DamageError:
        return None


def _of_queue(store: Path, run_id: str) -> list[AuditFinding]:
    """Returns the findings of a queue run: its schedule made again, also with another future."""
    from replay.audit import queue_run  # brings the compiled kernel, needed here only

    if not RunReader(run_index.folder(store, run_id)).finished:
        return [AuditFinding("re-execution", f"{run_id} was stopped while it was written; make it again")]
    return [AuditFinding(*found) for found in queue_run.audit(store, run_id).findings]


def executions(store: Path, reader: RunReader, progress: Progress) -> tuple[list[AuditFinding], list[str]]:
    """Returns findings and notes of two re-executions: one of the same world, one with another future.

    Samples ingested since are left out. Where the measurements of the run have changed there is nothing to
    compute it from: a note, no finding.
    """
    run_id, header = reader.run_dir.name, from_payload(reader.header())
    try:
        prepared, differences = runner.prepare_rerun(store, header, reader.events())
    except NotFoundError as error:
        return [], [f"not executed again: {error}"]
    if remeasured := world_reconstruction.remeasured(prepared.setup, header):
        return [], [f"not executed again: {world_reconstruction.describe_changes(remeasured, header)}"]
    notes = [f"executed again although {difference}" for difference in differences]
    try:
        repeat(prepared, reader, progress=progress)
    except BrokenMessageError as error:
        if error.last and not reader.finished:
            aside = "`twin serve` sets it aside when it goes on with the run"
            return [], [*notes, f"event {error.seq} is no part of the run: {error.what}; {aside}"]
        because = f" ({differences[0]})" if differences else ""
        return [AuditFinding("re-execution", f"event {error.seq}: {error.what}{because}")], notes
    except DivergenceError as error:
        because = f" ({differences[0]})" if differences else ""
        return [AuditFinding("re-execution", f"event {error.seq} differs: {error.what}{because}")], notes
    cut = middle_decision(reader.events())
    if cut is None or header.live is not None:  # a service has no trace to look ahead in
        return [], notes
    prepared, _ = runner.prepare_rerun(store, header, reader.events())
    changed = replace(prepared, setup=other_future(prepared.setup, cut.sim_ns))
    try:
        repeat(changed, reader, until=cut.seq, progress=progress)
    except DivergenceError as error:
        what = f"event {error.seq} depends on what happened after {cut.sim_ns} ns: {error.what}"
        return [AuditFinding("look-ahead", f"{run_id}: {what}")], notes
    return [], notes


def repeat(
    prepared: runner.PreparedRun, reader: RunReader, *, until: int | None = None, progress: Progress = SILENT
) -> int:
    """Recomputes a run, compares it with its log up to event `until`, and returns how many events agree.

    Raises:
        DivergenceError: the first event that differs.
    """
    compare = Compare(reader.run_dir.name, reader.events(), until=until, partial=not reader.finished)
    runner.execute_again(prepared, reader.events(), compare, progress)
    return compare.compared


def middle_decision(events: Iterable[Event]) -> Event | None:
    """Returns the middle `decided` event of the run, without its payload."""
    made = [replace(event, payload={}) for event in events_of(events, "decided")]
    return made[len(made) // 2] if made else None


def other_future(setup: PreparedScenario, after_ns: int) -> PreparedScenario:
    """Returns the same world up to and including `after_ns`, with different links after it."""
    series = {pair: _diverted(link, after_ns) for pair, link in setup.wan.series.items()}
    wan: WanTrace = replace(setup.wan, series=series)
    return replace(setup, wan=wan)


def _diverted(link: LinkSeries, after_ns: int) -> LinkSeries:
    known = link.times_ns <= after_ns
    later = ~known & (link.times_ns > after_ns + 1)
    held = link.bandwidth_bps[link.index(after_ns)]
    return LinkSeries(
        np.concatenate([link.times_ns[known], [after_ns + 1], link.times_ns[later]]),
        np.concatenate([link.bandwidth_bps[known], [held / 2], link.bandwidth_bps[later][::-1] / 3]),
        np.concatenate(
            [link.latency_s[known], [2 * link.latency_s[link.index(after_ns)]], link.latency_s[later]]
        ),
    )


def observations(events: Iterable[Event]) -> list[str]:
    """Returns the faults of the recorded views: wrong number, digest or time."""
    problems = []
    for number, event in enumerate(events_of(events, "decided")):
        said = event.payload
        if said["number"] != number:
            problems.append(f"event {event.seq} is decision {said['number']}, counted {number}")
        if digest(said["observation"]) != said["observation_digest"]:
            problems.append(f"event {event.seq}: the observation is not the one its digest was made of")
        if said["observation"]["now_ns"] != event.sim_ns:
            problems.append(f"event {event.seq}: the view is of {said['observation']['now_ns']} ns")
    return problems


def quarantined(events: Iterable[Event]) -> list[str]:
    """Returns a note for each message that was set aside."""
    return [
        f"event {event.payload['first']} ({event.payload['kind']}) was set aside, with all up to event "
        f"{event.seq - 1}: {event.payload['reason']}"
        for event in events_of(events, "message_quarantined")
    ]


def events_of(events: Iterable[Event], kind: str) -> Iterable[Event]:
    """Yields the events of one type."""
    return (event for event in events if event.type == kind)


@dataclass(frozen=True, slots=True)
class DecisionAudit:
    """One decision: its record, whether it is reproduced, why it was taken, what followed."""

    run_id: str
    number: int
    recorded: Json  # the `decided` payload: observation, forecast, candidates, mask, choice
    wall: Json
    checkpoint: str | None
    reproduced: bool
    difference: str | None
    explanation: explain.Explanation
    aftermath: Json

    def to_json(self) -> Json:
        """The object of `twin audit --decision N --json`."""
        return {
            "schema": "twin.decision/1",
            "run": self.run_id,
            "number": self.number,
            "ok": self.reproduced,
            "difference": self.difference,
            "recorded": self.recorded,
            "wall": self.wall,
            "checkpoint": self.checkpoint,
            "explanation": self.explanation.to_json(),
            "aftermath": self.aftermath,
        }


def decision(store: Path, run_id: str, number: int, *, progress: Progress = SILENT) -> DecisionAudit:
    """Audits decision `number` of a run: recomputed from the recorded views, explained, with what followed.

    Raises:
        NotFoundError: no such run or decision. DamageError: the log is damaged.
    """
    recorded = logged_decisions.find(store, run_id, number)
    prepared = logged_decisions.prepared_run(store, run_id)
    # A fallback is not the policy's decision; the first decisions of a what-if are another policy's.
    foreign = recorded.event.payload["fallback"] or number < (prepared.header.branch or {}).get("decision", 0)
    what = None if foreign else _decision_difference(prepared, recorded)
    return DecisionAudit(
        run_id=run_id,
        number=number,
        recorded=recorded.event.payload,
        wall=recorded.event.wall,
        checkpoint=prepared.header.checkpoint,
        reproduced=what is None,
        difference=what,
        explanation=explain.of_recorded(prepared, recorded, progress),
        aftermath=aftermath(recorded),
    )


def _decision_difference(prepared: runner.PreparedRun, recorded: LoggedDecision) -> str | None:
    """Returns how the decision of the run's policy on the recorded view differs; None if it does not."""
    decision = logged_decisions.policy_replay(prepared, recorded).ask(recorded.view)
    event = recorded.event
    payload = {**event.payload, **decision_to_json(decision)}
    return difference(event, event.sim_ns, event.type, payload, event.job)


def aftermath(recorded: LoggedDecision) -> Json:
    """Sums what happened until the next decision: pause, moved bytes, iterations, losses, egress."""
    applied = [e.payload for e in events_of(recorded.after, "plan_applied")]
    done = [e.payload for e in events_of(recorded.after, "iteration_done")]
    lost = [e.payload for e in events_of(recorded.after, "time_lost")]
    iterations = sum(d["count"] for d in done)
    spent_ns = sum(count * ns for d in done for count, ns in d["durations"])
    return {
        "predicted_iter_s": recorded.event.payload["predicted_iter_s"],
        "mean_iter_s": spent_ns / NS_PER_S / iterations if iterations else None,
        "iterations": iterations,
        "tokens": sum(d["tokens"] for d in done),
        "pause_s": sum(a["pause_ns"] for a in applied) / NS_PER_S,
        "moved_bytes": sum(size for a in applied for _, _, size in a["moved_bytes"]),
        "lost_s": sum(entry["lost_ns"] for entry in lost) / NS_PER_S,
        "egress_usd": sum(entry["egress_usd"] for entry in (*applied, *done, *lost)),
        "events": [e.type for e in recorded.after if e.type not in ("link_observed", "state_estimated")],
    }
