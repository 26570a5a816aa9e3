"""Outages with which a queue is played: those of a file, or faults that are drawn until its jobs end."""

import csv
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from ingest.core.errors import InputError, UsageError
from ingest.core.units import NS_PER_S, to_ns
from ingest.parsing import text_lines
from ingest.readers.clusters.swf_log import opened
from twin.nodes.outages import NO_OUTAGES, NodeOutages, SlowTime, drawn
from twin.queue.jobs import LATEST_NS, Int, QueueJobs

COLUMNS = ("node", "down_s", "up_s", "kind")
"""Columns of a file of outages; nodes are numbered from 0, seconds are those of the log. Rows of kind slow
need one more, `speed`: that of the node over its own."""
KINDS = ("fault", "drain", "slow")
PPM = 1_000_000
LEAST_SPEED = 0.001
"""Below it a node is no slow one: say that it fails."""
NOTICE_S = 3.0
"""Time until a fault is noticed, if nobody says another: a missed heartbeat or two."""
NOTICE_SLOW_S = 60.0
"""Time until a node is known to be slow, if nobody says another: some steps that last longer."""


class Ended(Protocol):
    """A schedule with the end of each job (n,), nanoseconds."""

    @property
    def end_ns(self) -> Int:
        """Returns the ends."""
        ...


Schedule = TypeVar("Schedule", bound=Ended, covariant=True)


class Played(Protocol[Schedule]):
    """Plays a queue with outages, and with nanoseconds between checkpoints."""

    def __call__(self, *, outages: NodeOutages, checkpoint_interval_ns: int) -> Schedule:
        """Returns the schedule."""
        ...


@dataclass(frozen=True, slots=True)
class OutagePlan:
    """Outages of a file, or mean seconds between faults and to repair of each node and a seed; and seconds of
    a run between checkpoints, 0: none are made. `notice_s`, `notice_slow_s`: seconds until a fault, and a
    slow node, is noticed where runs are changed; elsewhere a fault is known at once."""

    file: Path | None = None
    mtbf_s: float = 0.0
    mttr_s: float = 0.0
    seed: int = 0
    checkpoint_interval_s: float = 0.0
    notice_s: float = NOTICE_S
    notice_slow_s: float = NOTICE_SLOW_S

    @property
    def any(self) -> bool:
        """True if there are outages."""
        return self.file is not None or self.mtbf_s > 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns what is to be known of outages and checkpoints where nobody changes runs."""
        if not self.any:
            return ()
        every = self.checkpoint_interval_s
        kept = (
            f"a checkpoint every {every:g} s of a run" if every else "no checkpoints: ended jobs start anew"
        )
        waits = "with outages wait is the time from submission to end less the run time"
        return f"{self.source}; {kept}", waits

    @property
    def notes_beside_changes(self) -> tuple[str, ...]:
        """Returns the same where schedulers change runs."""
        if not self.any:
            return ()
        every = self.checkpoint_interval_s
        more = f", and every {every:g} s of a run" if every else ""
        slow = f", slow nodes after {self.notice_slow_s:g} s" if self.file is not None else ""
        return (
            f"{self.source}: faults are noticed after {self.notice_s:g} s{slow}; a checkpoint at every "
            f"change of a run{more}",
        )

    @property
    def source(self) -> str:
        """Returns where the outages come from."""
        if self.file is not None:
            return f"outages of {self.file.name}"
        return (
            f"synthetic faults, exponential: mean {self.mtbf_s / 3600:g} h between faults of a node, "
            f"{self.mttr_s / 3600:g} h to repair, seed {self.seed}"
        )

    def play(self, nodes: Sized, jobs: QueueJobs, played: Played[Schedule]) -> Schedule:
        """Returns the schedule under these outages of nodes, or of a cluster; faults are drawn further until
        the last job has ended, the same for every scheduler.

        Raises:
            InputError: the file cannot be read. UsageError: jobs do not end.
        """
        interval_ns = to_ns(self.checkpoint_interval_s)
        if not self.any:
            return played(outages=NO_OUTAGES, checkpoint_interval_ns=0)
        if self.file is not None:
            return played(outages=read(self.file, nodes), checkpoint_interval_ns=interval_ns)
        until_s = (int(jobs.submit_ns.max()) + 2 * int(jobs.run_ns.max())) / NS_PER_S + 1
        while True:
            faults = drawn(len(nodes), self.mtbf_s, self.mttr_s, until_s, self.seed)
            done = played(outages=faults, checkpoint_interval_ns=interval_ns)
            if int(done.end_ns.max()) <= until_s * NS_PER_S:
                return done
            until_s *= 2


def read(path: Path, nodes: Sized) -> NodeOutages:
    """Reads a CSV file of outages of nodes, or of those of a cluster.

    Raises:
        InputError: it cannot be read, or a row is no outage: the message names row, column and remedy.
    """
    lines = [text for _, text in text_lines.numbered(opened(path))]
    head = [cell.strip() for cell in next(csv.reader(lines[:1]), [])]
    if missing := [name for name in COLUMNS if name not in head]:
        raise InputError(
            f"{path}: no list of outages: its header has no {missing[0]}; it needs {', '.join(COLUMNS)}"
        )
    rows, slow = list[tuple[int, int, int, bool]](), list[SlowTime]()
    for number, cells in enumerate(csv.reader(lines[1:]), 1):
        where = f"{path}: row {number}"
        if len(cells) != len(head):
            raise InputError(f"{where}: {len(cells)} cells, not {len(head)} as the header; correct the row")
        row = dict(zip(head, (cell.strip() for cell in cells), strict=True))
        node, down_ns, up_ns = _when(row, where, len(nodes))
        if row["kind"] == "slow":
            slow.append(SlowTime(node, down_ns, up_ns, _speed(row, where)))
        else:
            rows.append((node, down_ns, up_ns, row["kind"] == "drain"))
    try:
        return NodeOutages.of_rows(rows, tuple(slow))
    except UsageError as error:
        raise InputError(f"{path}: {error}") from None


def _speed(row: dict[str, str], where: str) -> int:
    """The speed of a slow node, millionths of its own."""
    if "speed" not in row:
        raise InputError(f"{where}, column kind: a slow node needs a column speed, its speed over its own")
    try:
        speed = float(row["speed"])
    except ValueError:
        speed = 0.0
    if not LEAST_SPEED <= speed < 1:
        raise InputError(
            f"{where}, column speed: {row['speed'][:40]!r} is no speed of a slow node; say {LEAST_SPEED:g} "
            "or more, and less than 1"
        )
    return round(speed * PPM)


def _when(row: dict[str, str], where: str, nodes: int) -> tuple[int, int, int]:
    """The node, begin and end of one row."""
    text = row["node"]
    if not (text.isascii() and text.isdigit()) or int(text) >= nodes:
        raise InputError(f"{where}, column node: {text[:40]!r} is none of the nodes 0 to {nodes - 1}")
    times = []
    for column in ("down_s", "up_s"):
        try:
            seconds = float(row[column])
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < LATEST_NS / NS_PER_S:
            raise InputError(f"{where}, column {column}: {row[column][:40]!r} is no time; say seconds from 0")
        times.append(to_ns(seconds))
    if times[1] <= times[0]:
        raise InputError(f"{where}, column up_s: {row['up_s'][:40]!r} is not after down_s; say a later time")
    if row["kind"] not in KINDS:
        raise InputError(f"{where}, column kind: {row['kind'][:40]!r} is none of {', '.join(KINDS)}")
    return int(text), times[0], times[1]
