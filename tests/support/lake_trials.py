"""Trials of the lake on a real S3 server: a writer or the server is killed, two writers race.

A writer is a process with a working copy of its own, as on a machine of its own.
"""

import os
import random
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ingest.core.errors import LockedError, StorageError
from ingest.lake import lake
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import from_bytes
from ingest.pipeline.ingest import ingest_sources
from tests.support.bucket_trials import machine, patiently
from tests.support.buckets import Server, environment
from tests.support.fork_server import PROCESSES
from tests.support.formats import LINKS, lines, link

SOURCES, LONGEST_S = 3, 0.15


def write(store: Path, dataset: str, pipe: Connection | None = None) -> None:
    """Commits some sources, one after the other, as versions of one file; says each that is acknowledged."""
    options = DatasetOptions(name=dataset, reader="columns", table="link_samples")
    for number in range(SOURCES):
        content = lines(LINKS, *(link(str(number + 1)) for _ in range(1000)))
        ingest_sources(options, [from_bytes("file", "file", content)], store)
        if pipe is not None:
            pipe.send(number)


def _writer(address: str, store: Path, dataset: str, pipe: Connection) -> None:
    os.environ.update(environment(address))
    pipe.send(-1)
    try:
        write(store, dataset, pipe)
    except LockedError:
        pipe.send("told")
    except StorageError:  # the server was killed
        return


def _begin(address: str, folder: Path, url: str, dataset: str) -> tuple[Any, Connection]:
    ours, theirs = PROCESSES.Pipe()
    store = machine(folder, url).parents[1]
    process = PROCESSES.Process(target=_writer, args=(address, store, dataset, theirs))
    process.start()
    theirs.close()
    return process, ours


def _said(pipe: Connection) -> list[object]:
    said = []
    try:
        while True:
            said.append(pipe.recv())
    except EOFError:
        return said


def stored(folder: Path, url: str) -> dict[str, int]:
    """Rows of each data set as another machine reads them."""
    store = machine(folder, url).parents[1]
    assert lake.verify(store) == [] and lake.parts(store) is not None
    return {name: one.rows["link_samples"] for name, one in lake.datasets(store).items()}


def kill(
    server: Server, folder: Path, seed: int, *, of_server: bool
) -> tuple[int, dict[str, int], dict[str, int]]:
    """Kills a writer, or the server, at a random moment; returns how many versions the writer heard were
    committed, what another machine finds, and what is there once that machine has written all versions."""
    url = f"s3://backups/lake-kill-{seed}"
    process, pipe = _begin(server.address, folder / "first", url, "set")
    chance, heard = random.Random(seed), []
    for _ in range(1 + seed % SOURCES):  # that it began, and what it committed
        heard.append(pipe.recv())
    time.sleep(chance.uniform(0, LONGEST_S))
    if of_server:
        server.kill()
        server.start()
    else:
        process.kill()
    heard += _said(pipe)
    found = patiently(lambda: stored(folder / "other", url))
    write(folder / "other", "set")
    return len(heard) - 1, found, stored(folder / "third", url)


def race(address: str, folder: Path, seed: int, sets: Sequence[str]) -> tuple[int, dict[str, int]]:
    """Lets two machines write these data sets at once; returns how many were told, and what is there."""
    url = f"s3://backups/lake-race-{seed}"
    pipes = [_begin(address, folder / str(number), url, name)[1] for number, name in enumerate(sets)]
    said = [_said(pipe) for pipe in pipes]
    return sum("told" in words for words in said), stored(folder / "other", url)
