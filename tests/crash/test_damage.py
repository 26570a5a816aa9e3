"""Cuts, flipped bits, zeros and garbage: every change is found, the file named, and never a traceback."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.core.errors import DamageError
from replay.log.run_log import RunReader
from tests.support import crash_workload as workload

EVENTS, PER_FLUSH = 30, 12


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "run"
    workload.write(folder, EVENTS, PER_FLUSH)
    return folder


def files(run_dir: Path, ending: str) -> list[Path]:
    found = sorted(run_dir.glob(f"*.{ending}"))
    assert len(found) == 4
    return found


def assert_found(path: Path, damaged: bytes) -> None:
    """With `damaged` in the place of its bytes, `path` is named by the audit and no reader takes it for
    events."""
    whole = path.read_bytes()
    if damaged == whole:
        return
    workload.tally("damage", 1)
    try:
        path.write_bytes(damaged)
        reader = RunReader(path.parent)
        findings = reader.verify()
        assert path.name in {finding.file for finding in findings}, (path.name, findings)
        with pytest.raises(DamageError, match=path.name):
            for _ in reader.events():
                pass
    finally:
        path.write_bytes(whole)


def places(length: int, wanted: int, seed: int) -> Iterator[int]:
    """All places, or `wanted` random ones where there are more."""
    yield from range(length) if length <= wanted else random.Random(seed).sample(range(length), wanted)


def test_a_manifest_cut_anywhere(run_dir: Path) -> None:
    for path in files(run_dir, "json"):
        whole = path.read_bytes()
        for length in places(len(whole), 60 * workload.EFFORT, 0):
            assert_found(path, whole[:length])


def test_a_segment_cut_anywhere(run_dir: Path) -> None:
    for path in files(run_dir, "parquet"):
        whole = path.read_bytes()
        for length in places(len(whole), 80 * workload.EFFORT, 1):
            assert_found(path, whole[:length])


@pytest.mark.parametrize(("ending", "wanted"), [("json", 75), ("parquet", 75)])
def test_any_flipped_bit(run_dir: Path, ending: str, wanted: int) -> None:
    for number, path in enumerate(files(run_dir, ending)):
        whole = path.read_bytes()
        for place in places(8 * len(whole), wanted * workload.EFFORT, number):
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            assert_found(path, bytes(flipped))


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_zeros_garbage_and_wrong_lengths(run_dir: Path, ending: str) -> None:
    chance = random.Random(7)
    for path in files(run_dir, ending):
        whole = path.read_bytes()
        for _ in range(20 * workload.EFFORT):
            size = chance.randint(1, 4096)
            at = chance.randrange(len(whole))
            assert_found(path, whole[:at] + bytes(min(size, len(whole) - at)) + whole[at + size :])
            assert_found(path, whole + bytes(size))
            assert_found(path, whole + chance.randbytes(size))
        assert_found(path, b"")
        assert_found(path, chance.randbytes(len(whole)))
        assert_found(path, b"[" * 100_000)
