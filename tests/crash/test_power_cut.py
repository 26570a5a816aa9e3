"""A power cut at every moment of eleven commits, in every way the disk may have ordered what was not
synced."""

import random
from pathlib import Path

import pytest

from ingest.core.errors import DamageError
from replay.log.run_log import RunReader, recover
from tests.support import crash_workload as workload
from tests.support.disks import RememberingDisk, State, leave

PER_FLUSH = 3
SYNCS = ("data", "data name", "manifest", "manifest name", "tail", "tail name")


def post_crash(tmp_path: Path, events: int, omit: str | None = None) -> list[tuple[int, State]]:
    """All distinct (acknowledged sequence number, directory) that a power cut can leave while the run is
    written."""
    disk = RememberingDisk(omit)
    workload.write(tmp_path / "original", events, PER_FLUSH, disk=disk, acknowledge=disk.acknowledge)
    seen = {}
    for durable, moment in disk.moments:
        for state in moment.states():
            seen[durable, tuple(sorted(state.items()))] = state
    return [(key[0], state) for key, state in seen.items()]


def violation(run_dir: Path, durable: int) -> str | None:
    """What the directory breaks of the promises, after recovery."""
    try:
        recover(run_dir)
        there = RunReader(run_dir).contents().end
        lost = durable - (there - 1)
        if lost > 0:
            return f"{lost} acknowledged events are gone"
        return "; ".join(map(str, RunReader(run_dir).verify() if there else ())) or None
    except DamageError as error:
        return str(error)


def test_no_power_cut_breaks_a_promise(tmp_path: Path) -> None:
    states = post_crash(tmp_path, 10 * PER_FLUSH)
    for number, (durable, state) in enumerate(states):
        assert violation(leave(state, tmp_path / str(number)), durable) is None, (durable, sorted(state))
    workload.tally("states", len(states))
    assert len(states) >= 11 * 13  # 11 commits; the model does look


@pytest.mark.parametrize("omit", SYNCS)
def test_each_sync_is_needed(tmp_path: Path, omit: str) -> None:
    states = post_crash(tmp_path, 2 * PER_FLUSH, omit)
    states.sort(key=lambda item: len(item[1]))
    random.Random(0).shuffle(states)
    broken = (
        violation(leave(state, tmp_path / str(n)), durable) for n, (durable, state) in enumerate(states)
    )
    assert any(broken), f"{len(states)} power cuts and none did harm without the sync of the {omit}"


def test_a_run_resumes_from_what_a_power_cut_left(tmp_path: Path) -> None:
    digest, _ = workload.write(tmp_path / "whole", 4 * PER_FLUSH, PER_FLUSH)
    states = post_crash(tmp_path, 4 * PER_FLUSH)
    for number, (_, state) in enumerate(
        random.Random(1).sample(states, min(len(states), 30 * workload.EFFORT))
    ):
        run_dir = leave(state, tmp_path / str(number))
        assert workload.write(run_dir, 4 * PER_FLUSH, PER_FLUSH)[0] == digest
        assert RunReader(run_dir).verify() == []


def test_a_second_power_cut_while_the_run_is_recovered_and_resumed(tmp_path: Path) -> None:
    chance, tried = random.Random(2), 0
    states = post_crash(tmp_path, 3 * PER_FLUSH)
    for number, (durable, state) in enumerate(chance.choices(states, k=20 * workload.EFFORT)):
        run_dir, disk = leave(state, tmp_path / str(number)), RememberingDisk()
        disk.hold(run_dir)
        workload.write(run_dir, 3 * PER_FLUSH, PER_FLUSH, disk=disk, acknowledge=disk.acknowledge)
        later = [(kept, after) for kept, moment in disk.moments for after in moment.sampled(2)]
        for repeated, (kept, after) in enumerate(chance.choices(later, k=10 * workload.EFFORT)):
            left = leave(after, tmp_path / f"{number}-{repeated}")
            assert violation(left, max(durable, kept)) is None, (durable, kept, sorted(after))
            tried += 1
    workload.tally("states", tried)
