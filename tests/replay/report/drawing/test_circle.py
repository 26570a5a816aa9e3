"""Places of domains and the curves between them."""

import math
import re

import pytest

from replay.report.drawing.circle import GAP, HEIGHT, WIDTH, curve, places


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 16])
def test_places_lie_apart_in_the_picture(count: int) -> None:
    found = places(count)
    assert len({(round(one.x), round(one.y)) for one in found}) == count
    assert all(0 < one.x < WIDTH and 0 < one.y < HEIGHT for one in found)


def test_four_sites_stand_in_the_corners_and_three_begin_at_the_top() -> None:
    assert [(one.x < 500, one.y < 260) for one in places(4)] == [
        (True, True),
        (False, True),
        (False, False),
        (True, False),
    ]
    assert (places(3)[0].x, places(3)[0].y) == pytest.approx((500, 95))


def test_both_directions_of_a_link_bend_apart_and_leave_room_for_the_sites() -> None:
    a, b = places(2)
    there, back = ([float(x) for x in re.findall(r"[\d.]+", path)] for path in (curve(a, b), curve(b, a)))
    assert there[2:4] != back[2:4]
    assert math.hypot(there[0] - a.x, there[1] - a.y) == pytest.approx(GAP, rel=0.1)
