"""Bits that rot on a disk: flipped in the blocks of an ext4 image, so that size, times and inode stay.

python -m benchmarks.replay.bit_rot [--flips 240]; as root, for the image is mounted. A store is made on the
image, asked once, and unmounted. Then, flip by flip: one bit of a data block of a stored file is turned in
the image, the image is mounted anew (no page of it is cached), a new process asks SQL, logs, worlds,
constants, checkpoint and verification, and the bit is turned back.
"""

import argparse
import os
import pickle
import random
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import TwinError
from ingest.pipeline.ingest import ingest
from replay.api import store_check
from replay.log.run_log import RunReader
from replay.run import runner
from replay.sql import row_cache
from replay.sql.query import query
from replay.store import checkpoint_registry
from tests.support.tally import tally
from twin.calibration import calibration
from twin.calibration.calibrate import calibrate
from twin.scenario.prepare import load, prepare

BLOCK = 4096
TRACES = Path(__file__).resolve().parents[2] / "traces"
KINDS = {
    "lake": "lake/*/*/*.parquet",
    "manifests": "lake/manifests/*.json",
    "log": "runs/*/0*",
    "checkpoint": "checkpoints/*/*.pt",
    "calibration": "calibration*.json",
    "row cache": "cache/*/*.parquet",
}
SLOW = ("ingest.lake.duckdb_views", "policy.hippo.networks.checkpoint", "replay.log.event_validation")
"""Modules that are imported once, before processes are forked."""
VIEWS = (
    "events",
    "decisions",
    "iterations",
    "links",
    "runs",
    "link_samples",
    "gpu_samples",
    "layer_profiles",
)


def make(store: Path) -> None:
    """Writes a lake, a run with cached rows, a calibration and a promoted checkpoint."""
    ingest([TRACES], store)
    runner.run(store, policy="static", scenario=load("tri-7b"))
    calibrate(store).save(store)
    shipped = checkpoint_registry.stored(store)[-1]
    checkpoint_registry.promote(store, checkpoint_registry._installed(store, shipped))
    answers(store)  # what an earlier process has checked and cached


def answers(store: Path) -> dict[str, Any]:
    """Returns the answer to each question, or the error in words."""
    found: dict[str, Any] = {}
    for name, ask in _asks(store):
        try:
            found[name] = ask()
        except TwinError as error:
            found[name] = f"found: {error}"
        except Exception as error:  # noqa: BLE001 - an outcome to report
            found[name] = f"traceback: {error!r}"
    return found


def _asks(store: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    sums = ", ".join(f"(SELECT bit_xor(hash(v)) FROM {view} v) AS {view}" for view in VIEWS)
    yield "sql", lambda: query(store, f"SELECT {sums}").to_pylist()
    yield "log", lambda: [RunReader(run).digest() for run in sorted((store / "runs").iterdir())]
    yield "world", lambda: prepare(load("tri-7b"), store).trace_digest
    yield "constants", lambda: [calibration.find(store, which).to_json() for which in _calibrations(store)]
    yield "checkpoint", lambda: checkpoint_registry.in_use(store)
    yield "verify", lambda: [f"found: {one}" for one in store_check.check(store).findings] or "clean"


def _calibrations(store: Path) -> list[str]:
    return ["latest", *(path.stem for path in sorted((store / "calibrations").iterdir()))]


def in_new_process(ask: Callable[[], Any]) -> Any:
    """Returns what `ask` returns in a fork of this process, which must not have asked anything itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as out:
            pickle.dump(ask(), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as source:
        data = source.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    """Mounts the image for the body; its pages leave memory at the end."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop,noatime", str(image), str(at)], check=True)
    try:
        yield at / "store"
    finally:
        subprocess.run(["umount", str(at)], check=True)


def blocks(image: Path, name: str) -> list[int]:
    """Returns the numbers of the data blocks of a file in the image, in order."""
    command = ["debugfs", "-R", f'blocks "/store/{name}"', str(image)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [int(number) for number in re.findall(r"\d+", said)]


def flip(image: Path, place: int, bit: int) -> None:
    """Turns one bit of the image."""
    with image.open("r+b") as stream:
        stream.seek(place)
        (byte,) = stream.read(1)
        stream.seek(place)
        stream.write(bytes([byte ^ 1 << bit]))


def trials(folder: Path, flips: int) -> Iterator[tuple[str, str, str]]:
    """Yields kind of file, outcome (found, harmless, WRONG, traceback) and the answer behind it."""
    image, at = folder / "disk.img", folder / "mounted"
    with image.open("wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-b", str(BLOCK), str(image)], check=True)
    with mounted(image, at) as store:
        in_new_process(lambda: make(store))
        files = {kind: [(p.relative_to(store), p.stat()) for p in store.glob(KINDS[kind])] for kind in KINDS}
    with mounted(image, at) as store:
        expected = in_new_process(lambda: answers(store))
        assert "found" not in repr(expected) and "traceback" not in repr(expected), expected
    for number in range(flips):
        chance = random.Random(number)
        kind = list(KINDS)[number % len(KINDS)]
        name, status = chance.choice(sorted(files[kind]))
        byte, bit = chance.randrange(status.st_size), chance.randrange(8)
        place = blocks(image, name.as_posix())[byte // BLOCK] * BLOCK + byte % BLOCK
        flip(image, place, bit)
        with mounted(image, at) as store:
            now = (store / name).stat()
            assert (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == status_of(status)
            found = in_new_process(lambda: answers(store))
            if kind == "row cache":  # made again: the next flip is of the file that is there then
                shutil.rmtree(store / "cache")
                in_new_process(lambda: answers(store))
                files[kind] = [(p.relative_to(store), p.stat()) for p in store.glob(KINDS[kind])]
        if kind != "row cache":
            flip(image, place, bit)
        yield kind, *judged(found, expected)


def status_of(status: os.stat_result) -> tuple[int, int, int]:
    """Returns what a flip must leave: size and times."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def judged(found: dict[str, Any], expected: dict[str, Any]) -> tuple[str, str]:
    """Returns the worst outcome of all answers, and that answer."""
    worst = "harmless", ""
    ranks = ("harmless", "found", "WRONG", "traceback")
    for name, answer in found.items():
        text = str(answer[0] if name == "verify" and answer != "clean" else answer)
        outcome = next((one for one in ("found", "traceback") if text.startswith(one)), "WRONG")
        if answer != expected[name] and ranks.index(outcome) > ranks.index(worst[0]):
            worst = outcome, f"{name}: {text}"
    return worst


def table(folder: Path, flips: int) -> tuple[str, int]:
    """Returns outcomes by kind of file, and how many are wrong."""
    row_cache.LEAST_EVENTS = 100  # the run is small, and its rows are cached all the same
    for module in SLOW:
        import_module(module)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for kind, outcome, said in trials(folder, flips):
        counts[kind][outcome] += 1
        if outcome in ("WRONG", "traceback"):
            print(f"{kind}: {outcome}: {said}", flush=True)
    heads = ("found", "harmless", "WRONG", "traceback")
    lines = [f"| flips in | tried | {' | '.join(heads)} |", "|---|---:|---:|---:|---:|---:|"]
    for kind, count in counts.items():
        lines.append(f"| {kind} | {count.total()} | {' | '.join(str(count[head]) for head in heads)} |")
    bad = sum(count["WRONG"] + count["traceback"] for count in counts.values())
    return "\n".join(lines), bad


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("debugfs"), reason="mounts an ext4 image")
def test_no_flip_on_a_disk_image_changes_an_answer(tmp_path: Path) -> None:
    flips = int(os.environ.get("TWIN_FLIPS", "240"))
    said, bad = table(tmp_path, flips)
    tally("rot on ext4", flips)
    assert bad == 0, said


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=240)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(table(Path(folder), given.flips)[0])


if __name__ == "__main__":
    main()
