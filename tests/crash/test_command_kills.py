"""kill -9 of commands at random moments: what they leave is whole, and the same command ends the work.

`TWIN_CRASH_EFFORT=5` kills each command twenty times, the lab five times; with 20 it is twenty for the lab.
"""

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from ingest.lake import lake
from ingest.pipeline.ingest import ingest
from ingest.public import fetch
from ingest.public.catalogue import Item, PublicDataset
from lab.emulated_wan import missing
from replay.log.compaction import compact
from replay.log.run_log import RunReader
from tests.support import crash_workload as workload
from tests.support.commands import STATIC
from tests.support.commands import fill as fill_store
from tests.support.fork_server import PROCESSES
from tests.support.formats import LINKS, lines, link
from tests.support.lakes import fill, tree

KILLS = 4 * workload.EFFORT
TARGETS = ("megatron", "kubernetes", "slurm", "torchrun")
Work = Callable[[], object]


def command(*words: str) -> None:
    """Runs `twin` in this process."""
    import cli

    sys.argv = ["twin", *words]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise


def process(
    modules: tuple[str, ...], work: Callable[..., None], words: tuple[str, ...], pipe: Connection
) -> None:
    """Imports what the work needs, says so, works, says so."""
    for name in modules:
        import_module(name)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pipe.send("ready")
    work(*words)
    pipe.send("ended")


class Killer:
    """Runs a command in processes that are killed; `seconds` is how long it takes undisturbed."""

    def __init__(self, modules: tuple[str, ...], work: Callable[..., None] = command, seed: int = 0) -> None:
        self.modules, self.work, self.chance = modules, work, random.Random(seed)
        self.seconds, self.killed = 0.0, 0

    def whole(self, *words: str) -> None:
        """Lets the command end, and measures it."""
        began = self._run(words, None)
        self.seconds = time.monotonic() - began

    def kill(self, *words: str) -> None:
        """Kills the command at a random moment, if it has not ended by then."""
        self._run(words, self.chance.uniform(0, 1.1 * self.seconds))

    def _run(self, words: tuple[str, ...], delay_s: float | None) -> float:
        ours, theirs = PROCESSES.Pipe()
        child = PROCESSES.Process(target=process, args=(self.modules, self.work, words, theirs))
        child.start()
        theirs.close()
        assert ours.recv() == "ready"
        began = time.monotonic()
        if delay_s is None:
            assert ours.recv() == "ended"
        elif not ours.poll(delay_s):
            child.kill()
            self.killed += 1
        child.join()
        ours.close()
        return began


def visible(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but those that were being written."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def left_behind(folder: Path) -> list[Path]:
    """Temporary files of processes that were killed."""
    return list(folder.rglob(".*.tmp"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands") / "store"
    fill_store(folder)
    return folder


def test_an_export_that_is_killed_leaves_whole_files(store: Path, tmp_path: Path) -> None:
    killer = Killer(("commands.planning", "replay.export.planned_job", "replay.export.registry"))
    for number in range(KILLS):
        target, out = TARGETS[number % len(TARGETS)], tmp_path / str(number)
        words = ("--store", str(store), "export", STATIC, "--to", target, "--nearest", "--quiet", "--out")
        killer.whole(*words, str(tmp_path / "whole"), "--force")
        expected = visible(tmp_path / "whole")
        shutil.rmtree(tmp_path / "whole")
        killer.kill(*words, str(out))
        assert visible(out).items() <= expected.items(), "a file is whole or not there"
        killer.whole(*words, str(out), "--force")
        assert visible(out) == expected and not left_behind(out)
    workload.tally("command kills", killer.killed)


def fetched_set(folder: str, store: str) -> None:
    """Fetches a set of a catalogue of its own from a mirror."""
    import hashlib

    files = [(path, path.read_bytes()) for path in sorted(Path(folder, "wan/set").rglob("*.csv"))]
    items = tuple(
        Item(
            str(path.relative_to(Path(folder, "wan/set"))), len(data), hashlib.sha256(data).hexdigest(), None
        )
        for path, data in files
    )
    fetch.find = lambda name: PublicDataset("set", "wan", "a title", "MIT", "who", ("columns",), items)  # type: ignore[assignment]
    command("--store", store, "fetch", "set", "--mirror", folder, "--quiet")


def test_a_fetch_that_is_killed_leaves_whole_files_and_goes_on(tmp_path: Path) -> None:
    chance = random.Random(1)
    for number in range(24):
        path = tmp_path / "mirror" / "wan" / "set" / ("below" if number % 2 else ".") / f"{number}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(200_000))
    expected = visible(tmp_path / "mirror" / "wan" / "set")
    killer = Killer(("commands.data", "ingest.public.fetch"), fetched_set)
    killer.whole(str(tmp_path / "mirror"), str(tmp_path / "store"))
    for number in range(KILLS):
        store = tmp_path / f"store-{number}"
        killer.kill(str(tmp_path / "mirror"), str(store))
        folder = store / "fetched" / "set"
        assert visible(folder).items() <= expected.items(), "a file is whole or not there"
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.csv")}
        killer.whole(str(tmp_path / "mirror"), str(store))
        assert visible(folder) == expected and not left_behind(folder)
        assert all(path.stat().st_mtime_ns == at for path, at in before.items()), "nothing came twice"
    workload.tally("command kills", killer.killed)


def test_a_drop_that_is_killed_has_dropped_all_or_nothing(tmp_path: Path) -> None:
    first = tmp_path / "store"
    mine = fill(tmp_path / "mine", {f"{n}.csv": lines(LINKS, link(str(n))) for n in range(1, 9)})
    other = fill(tmp_path / "other", {"c.csv": lines(LINKS, link("3"))})
    ingest([mine, other], first)
    fill(mine, {"1.csv": lines(LINKS, link("40"))})
    ingest([mine], first)
    both, one = lake.digest(first), lake.digest(first, "other")
    killer = Killer(("commands.data", "ingest.lake.lake"))
    words = ("traces", "mine", "--drop", "--quiet")
    shutil.copytree(first, tmp_path / "whole")
    killer.whole("--store", str(tmp_path / "whole"), *words)
    seen = set()
    for number in range(KILLS):
        store = tmp_path / f"store-{number}"
        shutil.copytree(first, store)
        killer.kill("--store", str(store), *words)
        assert lake.verify(store) == [] and lake.digest(store) in (both, one)
        assert lake.digest(store, "other") == one
        seen.add(there := "mine" in lake.datasets(store))
        if there:
            killer.whole("--store", str(store), *words)
        assert set(lake.datasets(store)) == {"other"} and lake.digest(store) == one
        ingest([other], store)  # the next writer takes away what was left
        assert not [name for name in tree(store) if "dataset=mine" in name], "no part is left behind"
    workload.tally("command kills", killer.killed)


def test_a_compaction_that_is_killed_keeps_the_run_and_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "store" / "runs" / "a"
    digest, head = workload.write(run, 600, 5)
    killer = Killer(("commands.inspecting", "replay.log.compaction"))
    shutil.copytree(tmp_path / "store", tmp_path / "whole")
    killer.whole("--store", str(tmp_path / "whole"), "compact", "a", "--quiet")
    for number in range(KILLS):
        store = tmp_path / f"store-{number}"
        shutil.copytree(tmp_path / "store", store)
        killer.kill("--store", str(store), "compact", "a", "--quiet")
        reader = RunReader(store / "runs" / "a")
        assert reader.verify(head) == [] and (reader.digest(), reader.chain_head()) == (digest, head)
        done = compact(store / "runs" / "a")
        assert done.files == 1 and reader.verify(head) == [] and reader.digest() == digest
        assert len(visible(store / "runs" / "a")) == 2 and not left_behind(store)
        shutil.rmtree(store)
    workload.tally("command kills", killer.killed)


def of_lab(folder: Path) -> Iterator[int]:
    """Numbers of processes that work in a folder of a lab, or below it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:  # it has ended
                continue
            if f"TMPDIR={folder}".encode() in words and b"pytest" not in words.split(b"\0")[0]:
                yield int(entry.name)


def lab_in(folder: str, store: str) -> None:
    """Runs a short lab whose temporary files lie in a folder."""
    os.environ["TMPDIR"] = folder
    import tempfile

    tempfile.tempdir = None
    command("--store", store, "lab", "--steps", "3", "--time-scale", "100", "--quiet")


@pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}")
def test_a_lab_that_is_killed_leaves_no_process_and_no_network(store: Path, tmp_path: Path) -> None:
    killer = Killer(("commands.emulating", "lab.comparison", "lab.miniature"), lab_in, seed=2)
    killer.seconds = 30.0
    for number in range(workload.EFFORT):
        folder = tmp_path / str(number)
        folder.mkdir()
        killer.kill(str(folder), str(store))
        until = time.monotonic() + 60
        while (left := list(of_lab(folder))) and time.monotonic() < until:
            time.sleep(0.2)
        assert left == [], "every process of the lab, and its namespace, ends with the command"
    workload.tally("command kills", killer.killed)
