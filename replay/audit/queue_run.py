"""Audit of a queue run: its schedule made again from its events, also with another future, and what cannot
be."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ingest.core.units import NS_PER_S
from replay.log.run_log import RunReader
from replay.logqueue import logged_nodes, logged_sites, run_events
from replay.logqueue.job_changes import AnySchedule
from replay.logqueue.logged_run import LoggedQueue, load, played, used_processors
from replay.store import run_index
from replay.store.event_sinks import Compare, DivergenceError, Reached
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.runs import on_nodes_out, runs_of
from twin.queue.simulation import QueueSchedule


@dataclass(frozen=True, slots=True)
class QueueAudit:
    """Findings of an audit of a queue run: faults as (check, problem), and how many events agree."""

    run_id: str
    findings: tuple[tuple[str, str], ...]
    compared: int

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings


def audit(store: Path, run_id: str) -> QueueAudit:
    """Simulates a queue run again and compares every event; changes the future, and compares the past.

    The chain and the digests of the log are those of every run and are checked before (`replay.audit`).
    """
    run = load(store, run_id)
    findings = [("conservation", problem) for problem in contradictions(run.runs)]
    if run.nodes is not None:
        impossible = (*logged_nodes.overfull(run.nodes), *on_nodes_out(run.nodes))
        findings += [("conservation", problem) for problem in impossible]
    if run.sites is not None:
        findings += [("conservation", problem) for problem in logged_sites.overfull(run.sites)]
    findings += [("conservation", problem) for problem in badly_submitted(run)]
    compare, error = repeated(store, run)
    if error is not None:
        findings.append(("re-execution", f"event {error.seq} differs: {error.what}"))
    findings += [("look-ahead", problem) for problem in looks_ahead(run)]
    return QueueAudit(run_id, tuple(findings), compare.compared)


def repeated(
    store: Path, run: LoggedQueue, until: int | None = None
) -> tuple[Compare, DivergenceError | None]:
    """Simulates a run again, and compares it with its log up to the event `until`; returns the comparison and
    the first difference."""
    reader = RunReader(run_index.folder(store, run.run_id))
    compare = Compare(run.run_id, reader.events(), until=until, partial=not reader.finished)
    try:
        with suppress(Reached):
            run_events.emit(
                compare, run.header, played(run, run.logged.jobs), run.names, run.left_out,
                run.failed,
            )  # fmt: skip
    except DivergenceError as error:
        return compare, error
    return compare, None


def contradictions(done: QueueSchedule) -> list[str]:
    """Returns what cannot be: a start before the submission, or more processors in use than there are."""
    problems = []
    early = np.flatnonzero(done.start_ns < done.jobs.submit_ns)
    if len(early):
        first = done.jobs.number[early[0]]
        problems.append(f"{len(early)} jobs start before they are submitted, the first is job {first}")
    used = used_processors(done)[1]
    if len(used) and used.max() > done.processors:
        problems.append(f"{used.max():,} processors are in use of {done.processors:,}")
    return problems


def badly_submitted(run: LoggedQueue) -> list[str]:
    """Returns what is wrong with the jobs that follow others: one that is not submitted its think time after
    the end before it, or recorded inputs that are not those of the header."""
    if run.moved is None:
        return []
    done, problems = run.schedule, []
    due_ns = run.moved.dependencies.submit_ns(done.jobs, done.start_ns)
    wrong = np.flatnonzero(due_ns != done.jobs.submit_ns)
    if len(wrong) and (before := run.preceding(int(wrong[0]))) is not None:
        name, think_ns = run.names.job(int(wrong[0]) + 1), before[1] / NS_PER_S
        problems.append(
            f"{len(wrong)} jobs are not submitted their think time after the end of the job before them, the "
            f"first is job {name}: {think_ns:g} s after the end of job {before[0]}"
        )
    if run_events.digest_of(done.jobs, run.moved) != run.header.world["traces"]["source"]:
        problems.append("the jobs of the events are not those of the header: an input was changed")
    return problems


def looks_ahead(run: LoggedQueue) -> list[str]:
    """Returns which starts up to the middle of the run depend on what happened later.

    Runs that end later are cut to half of what was left of them, and later submissions are left out; outages
    that last longer are cut likewise, and later ones are left out. With the prediction `actual` the scheduler
    knows run times by design, and nothing is checked.
    """
    done, jobs, nodes = run.schedule, run.logged.jobs, run.nodes
    if run.choices.prediction == "actual" or not len(jobs):
        return []
    middle, outages = int(np.median(run.runs.start_ns)), None
    known = done.jobs.submit_ns <= middle
    if run.sites is not None:  # a rate that links change says nothing of how much work is left
        shorter = np.where(done.start_ns > middle, jobs.estimate_ns, jobs.run_ns)
    elif nodes is None or run.node_runs is None:
        left = np.maximum(done.end_ns - np.maximum(done.start_ns, middle), 0)
        shorter = np.where(
            done.end_ns > middle, np.maximum(done.jobs.run_ns - left // 2, 1), done.jobs.run_ns
        )
    else:
        left = jobs.run_ns - run.node_runs.done_ns(len(jobs), middle)
        shorter = np.where(done.end_ns > middle, jobs.run_ns - left // 2, jobs.run_ns)
        until_ns = middle + np.maximum((nodes.outages.up_ns - middle) // 2, 1)
        outages = nodes.outages.known_at(middle, until_ns)
    other = played(run, replace(jobs, run_ns=shorter).select(known), outages=outages)
    moved = sorted(_starts_until(run.logged, middle) ^ _starts_until(other, middle))
    return [
        f"the start of job {run.names.job(job)} depends on what happened after it" for _, job in moved[:1]
    ]


def _starts_until(done: AnySchedule, until_ns: int) -> set[tuple[int, int]]:
    """Returns the starts of runs up to a time, each with the number of its job."""
    start_ns, job = done.start_ns, done.jobs.number
    if isinstance(done, NodeSchedule):
        runs = runs_of(done)
        start_ns, job = runs.start_ns, done.jobs.number[runs.job]
    begun = start_ns <= until_ns
    return set(zip(start_ns[begun].tolist(), job[begun].tolist(), strict=True))
