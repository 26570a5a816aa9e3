from pathlib import Path

import numpy as np
import pytest

from benchmarks.twin.measured_memory import MEMORY_SETS
from ingest.core.units import GIB
from twin.costs.memory import WORKSPACE_BYTES
from twin.goodput.batch_choice import BatchChoice, BatchQuestion, choices_of, domain_of
from twin.goodput.out_of_memory import (
    BANDWIDTH,
    LEAST_PEAK_GIB,
    PEAK_RATIOS,
    first_way,
    launched,
    ratios,
)

ROOM = 80 * 10**9


def way(micro: int, gigabytes: float, recompute: str = "none") -> BatchChoice:
    peak = WORKSPACE_BYTES + round(gigabytes * 1e9)
    speed = 10.0 + micro - (8 if recompute == "full" else 0)
    return BatchChoice(32, micro, 32 // micro, recompute, 3, 32 / speed, speed, 1.0, speed, 1.0, peak, True)


WAYS = [way(1, 30), way(2, 45), way(4, 71), way(8, 90), way(8, 30, "full")]


def test_the_first_way_keeps_the_margin_and_the_next_is_smaller() -> None:
    first = first_way(WAYS, ROOM, 0.08)
    assert first == WAYS[2]
    assert first_way(WAYS, ROOM, 0.2) == WAYS[1]
    assert first_way(WAYS, 20 * 10**9) is None

    fits = launched(WAYS, WAYS[2], 1.08, ROOM)
    assert fits.failed == () and fits.way == WAYS[2] and fits.slower == 1.0
    # 71 GB x 1.12 and the workspace are more than 80 GB
    once = launched(WAYS, WAYS[2], 1.12, ROOM)
    assert once.failed == (WAYS[2],) and once.way == WAYS[1]
    assert once.slower == pytest.approx(14 / 12)
    assert once.needed_bytes(WAYS[2]) == WORKSPACE_BYTES + round(71e9 * 1.12)


def test_a_job_goes_on_until_something_fits_or_nothing_is_left() -> None:
    twice = launched(WAYS, WAYS[2], 2.0, ROOM)
    assert [one.peak_bytes for one in twice.failed] == [WAYS[2].peak_bytes, WAYS[1].peak_bytes]
    assert twice.way is not None and twice.way.peak_bytes == WAYS[0].peak_bytes
    never = launched(WAYS, WAYS[2], 3.0, ROOM)
    assert never.way is None and len(never.failed) == 3 and never.slower == 1.0


def test_errors_are_drawn_around_the_measured_ones() -> None:
    drawn = ratios(np.random.default_rng(1), 20_000)
    assert drawn.mean() == pytest.approx(np.mean(PEAK_RATIOS), abs=0.001)
    spread = (np.var(PEAK_RATIOS) + BANDWIDTH**2) ** 0.5
    assert drawn.std() == pytest.approx(spread, rel=0.03)
    assert drawn.max() > max(PEAK_RATIOS)


def test_ways_of_a_question_hold_those_that_do_not_fit() -> None:
    found = choices_of(BatchQuestion("gpt2-1.5b", "A100-80", 2, (32,)))
    assert not all(one.fits for one in found)
    first = first_way(found, domain_of("A100-80", 1).gpu.memory_bytes)
    assert first is not None and first.fits


@pytest.mark.shared
def test_the_ratios_are_those_of_the_measured_peaks(shared: Path) -> None:
    runs = [run for one in MEMORY_SETS if "peak" in one.title for run in one.read(shared)]
    large = [run for run in runs if run.measured >= LEAST_PEAK_GIB * GIB]
    assert sorted(run.measured / run.predict() for run in large) == pytest.approx(PEAK_RATIOS, abs=2e-4)
