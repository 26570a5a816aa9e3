"""Plans of all shapes in one pass: to the nanosecond what the kernel says of each alone."""

import numpy as np
import pytest

from twin.core.plan import PointToPoint, Schedule
from twin.estimation.mixed_shapes_kernel import Lines, exact_ns
from twin.pipeline.kernel import DEAD, iteration_ns
from twin.pipeline.pipeline import MODES, Pipeline, warmup_depths

PLANS, STATES, DOMAINS = 60, 11, 3


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
@pytest.mark.parametrize("grain", [1, 1000, 1_000_000])
def test_equals_the_kernel(schedule: Schedule, p2p: PointToPoint, grain: int) -> None:
    """Coarse grains make ties and short periods, fine ones long transients; some links are dead."""
    rng = np.random.default_rng(grain)
    width = 9
    stages = rng.integers(1, width + 1, PLANS)
    m = rng.integers(1, 70, PLANS)
    times = rng.integers(1, 40, (3, PLANS, width)) * (10**9 // 20) // grain * grain
    inner = rng.integers(0, 30, (2, PLANS, width - 1)) * (10**9 // 50) // grain * grain
    source = rng.integers(-1, DOMAINS - 1, (PLANS, width - 1))
    target = np.where(source >= 0, source + 1, -1)
    bandwidth = rng.uniform(1e8, 1e10, (PLANS, STATES, DOMAINS, DOMAINS))
    bandwidth[rng.random(PLANS) < 0.2, 3, 0, 1] = 0.0
    latency = rng.uniform(0, 0.3, bandwidth.shape)
    size, tied_bytes = rng.uniform(1e6, 3e8, PLANS), np.where(rng.random(PLANS) < 0.5, 3e8, 0.0)
    got = np.empty((PLANS, STATES), np.int64)
    lines = Lines(stages, m, *times, source, target, *inner, size, tied_bytes)
    exact_ns(lines, bandwidth, latency, schedule == "gpipe", MODES[p2p], got)
    for p in range(PLANS):
        s = int(stages[p])
        wide = source[p, : s - 1] >= 0
        i, j = source[p, : s - 1], target[p, : s - 1]

        def columns(matrix: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return matrix[:, a, b].T

        with np.errstate(divide="ignore"):
            send = [size[p] * 8 / columns(bandwidth[p], *ends) for ends in ((i, j), (j, i))]
        sent = [np.rint(np.minimum(seconds * 1e9, 1e14)).astype(np.int64) for seconds in send]
        late = [np.rint(columns(latency[p], *ends) * 1e9).astype(np.int64) for ends in ((i, j), (j, i))]
        of, ob = (np.where(wide[:, None], x, inner[0, p, : s - 1, None]) for x in sent)
        lf, lb = (np.where(wide[:, None], x, inner[1, p, : s - 1, None]) for x in late)
        tf, tb, tail = (np.repeat(row[p, :s, None], STATES, axis=1) for row in times)
        dead = (np.maximum(of, ob).max(0, initial=0)) >= 1e14
        if wide.any() and tied_bytes[p]:  # two steps, both ways at once, between the domains at the ends
            a, b = i[wide][0], j[wide][-1]
            with np.errstate(divide="ignore"):
                step = [
                    np.rint(np.minimum(tied_bytes[p] * 8 / bandwidth[p, :, x, y] * 1e9, 1e14))
                    + np.rint(latency[p, :, x, y] * 1e9)
                    for x, y in ((a, b), (b, a))
                ]
            tail[[0, -1]] += 2 * np.maximum(*step).astype(np.int64)
            dead |= np.maximum(*step) >= 1e14
        alone = iteration_ns(
            Pipeline(tf, tb, of, lf, ob, lb, tail, warmup_depths(s, int(m[p])), int(m[p]), schedule, p2p)
        )
        np.testing.assert_array_equal(got[p], np.where(dead, DEAD, alone))


@pytest.mark.parametrize("shape", [(1, 1), (1, STATES), (PLANS, 1)])
def test_states_that_repeat_need_not_be_written_out(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    stages, m = np.full(PLANS, 2), rng.integers(2, 30, PLANS)
    times, inner = rng.integers(1, 10**7, (3, PLANS, 2)), np.zeros((2, PLANS, 1), np.int64)
    ends = rng.permuted(np.tile([0, 1], (PLANS, 1)), axis=1)
    lines = Lines(
        stages, m, *times, ends[:, :1], ends[:, 1:], *inner, np.full(PLANS, 1e7), np.full(PLANS, 1e6)
    )
    links = rng.uniform(1e8, 1e10, (*shape, 2, 2)), rng.uniform(0, 0.3, (*shape, 2, 2))
    whole = [np.broadcast_to(one, (PLANS, STATES, 2, 2)) for one in links]
    found = np.empty((2, PLANS, STATES), np.int64)
    exact_ns(lines, *whole, False, 0, found[0])
    exact_ns(lines, *(one.copy() for one in whole), False, 0, found[1])
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found)) > PLANS / 2
