import math

import numpy as np
import pytest

from lab.link_schedule import Direction, decoded, directions, encoded
from lab.scale import Scale
from twin.traces.wan_trace import LinkSeries, trace


def test_bits_leave_at_the_rates_of_their_time() -> None:
    link = Direction([0.0, 2.0, 5.0], [100.0, 0.0, 50.0], [0.1, 0.1, 0.1])

    assert link.departure_s(0.0, 150.0) == pytest.approx(1.5)
    assert link.departure_s(1.0, 100.0) == pytest.approx(2.0)
    # 100 bits until 2 s, nothing until 5 s, the last 50 at half the rate.
    assert link.departure_s(1.0, 150.0) == pytest.approx(6.0)
    assert link.departure_s(-3.0, 100.0) == pytest.approx(-2.0)


def test_a_dead_link_lets_nothing_leave() -> None:
    assert math.isinf(Direction([0.0], [0.0], [0.1]).departure_s(0.0, 1.0))


def test_links_are_scaled_in_time_and_bytes() -> None:
    row = LinkSeries(np.array([0, 40 * 10**9]), np.array([4.096e9, 2.048e9]), np.array([0.08, 0.04]))
    wan = trace(("a", "b"), {(0, 1): row, (1, 0): row}, 100 * 10**9)

    found = directions(wan, Scale(time=4.0, bytes=1024.0), loss=0.0)

    assert found[0, 1] == Direction([0.0, 10.0], [16e6, 8e6], [0.02, 0.01])
    assert decoded(encoded(found)) == found
    later = directions(wan, Scale(time=4.0, bytes=1024.0), loss=0.0, start_s=20.0)
    assert later[0, 1].times_s == [-5.0, 5.0] and later[0, 1].rates_bps == [16e6, 8e6]


def test_scales_lead_there_and_back() -> None:
    scale = Scale(time=4.0, bytes=1024.0)

    assert scale.scenario_s(scale.lab_s(7.0)) == 7.0
