"""Trials of the log on a real S3 server: the writer or the server is killed, two writers race.

A writer is a process with a working copy of its own, as on a machine of its own.
"""

import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, TypeVar

from ingest.core import integrity
from ingest.core.durable import replace
from ingest.core.errors import ExistsError, LockedError, StorageError
from ingest.objects import working_copy
from replay.log import bucket_log
from replay.log.run_log import RunReader, RunWriter
from tests.support import crash_workload as workload
from tests.support.buckets import Server, environment
from tests.support.fork_server import PROCESSES

T = TypeVar("T")
EVENTS, PER_FLUSH, LONGEST_S = 240, 8, 0.5


class Trial(NamedTuple):
    """The last event that a writer heard was durable, and the last that a reader elsewhere found."""

    acknowledged: int
    stored: int
    whole: bool
    """Nothing was found to be damaged, and the resumed run has the digest of one that nobody stopped."""


class Race(NamedTuple):
    """Writers that ended the run, that were told, and whether the log is the winner's alone and whole."""

    won: int
    told: int
    whole: bool


def machine(folder: Path, url: str) -> Path:
    """A new working copy of a store in a bucket; returns the folder of its one run."""
    replace(folder / working_copy.MARK, integrity.sealed({"schema": working_copy.SCHEMA, "url": url}))
    return folder / "runs" / "a"


def write(
    run_dir: Path, writer: str, acknowledge: Connection | None = None, until: int = EVENTS
) -> str | None:
    """Starts or resumes the run; returns its digest, None if it stops before the end."""
    bucket_log.bring_up_to_date(run_dir)
    make = RunWriter.open if run_dir.exists() else RunWriter.create
    with make(run_dir, flush_events=PER_FLUSH, flush_s=10**9) as log:
        for number in range(until):
            log.append(*workload.event(number), wall={"writer": writer})
            if number % PER_FLUSH in (0, PER_FLUSH // 2) and acknowledge is not None:
                acknowledge.send(log.flush())
        return log.finish({"events": EVENTS})[0] if until == EVENTS else None


def _writer(address: str, run_dir: Path, pipe: Connection) -> None:
    os.environ.update(environment(address))
    with suppress(StorageError):  # the server was killed
        write(run_dir, "first", pipe)


def kill(server: Server, folder: Path, seed: int, digest: str, *, of_server: bool) -> Trial:
    """Kills the writer, or the server, at a random moment; reads, and goes on, from another machine."""
    url, chance = f"s3://backups/kill-{seed}", random.Random(seed)
    ours, theirs = PROCESSES.Pipe()
    first = PROCESSES.Process(target=_writer, args=(server.address, machine(folder / "first", url), theirs))
    first.start()
    theirs.close()
    acknowledged = -1
    with suppress(EOFError):
        acknowledged = ours.recv()  # from here on
        time.sleep(chance.uniform(0, LONGEST_S))
    if of_server:
        server.kill()
        server.start()
    else:
        first.kill()
    first.join()
    with suppress(EOFError):
        while ours.poll():
            acknowledged = ours.recv()
    ours.close()
    other = machine(folder / "other", url)
    stored = patiently(lambda: workload.stored(other))
    whole = write(other, "second") == digest and RunReader(other).verify() == []
    shutil.rmtree(folder, ignore_errors=True)
    return Trial(acknowledged, stored, whole)


def patiently(read: Callable[[], T]) -> T:
    """Reads again while the server, just started, says that it cannot: an answer must be all or an error."""
    for _ in range(60):
        try:
            return read()
        except StorageError:
            time.sleep(0.5)
    return read()


def _racer(address: str, run_dir: Path, name: str, pipe: Connection) -> None:
    os.environ.update(environment(address))
    make = RunWriter.open if run_dir.exists() else RunWriter.create
    try:
        with make(run_dir, flush_events=PER_FLUSH, flush_s=10**9) as log:
            number = 0
            while log.replaying:
                log.append(*workload.event(number), wall={"writer": name})
                number += 1
            pipe.send("ready")
            pipe.recv()
            for later in range(number, EVENTS):
                log.append(*workload.event(later), wall={"writer": name})
            log.finish({"events": EVENTS})
    except (LockedError, ExistsError):
        pipe.send("told")
    else:
        pipe.send("won")


def race(server: Server, folder: Path, seed: int, digest: str) -> Race:
    """Lets two writers, each on its machine, begin a run, or go on with one, at the same moment."""
    url, chance = f"s3://backups/race-{seed}", random.Random(seed)
    begun = chance.choice((0, chance.randrange(1, EVENTS)))
    if begun:
        write(machine(folder / "before", url), "before", until=begun)
    racers, pipes = [], []
    for name in ("one", "two"):
        run_dir = machine(folder / name, url)
        if begun:
            RunReader(run_dir)
        ours, theirs = PROCESSES.Pipe()
        racers.append(PROCESSES.Process(target=_racer, args=(server.address, run_dir, name, theirs)))
        pipes.append(ours)
        racers[-1].start()
        theirs.close()
    for pipe in pipes:
        assert pipe.recv() == "ready"
    for pipe in pipes:
        pipe.send("go")
    said = [pipe.recv() for pipe in pipes]
    for racer in racers:
        racer.join()
    reader = RunReader(machine(folder / "other", url))
    writers = {str(event.wall.get("writer")) for event in list(reader.events())[begun:-1]}
    winner = {name for name, word in zip(("one", "two"), said, strict=True) if word == "won"}
    whole = reader.verify() == [] and reader.digest() == digest and writers == winner
    shutil.rmtree(folder, ignore_errors=True)
    return Race(said.count("won"), said.count("told"), whole)
