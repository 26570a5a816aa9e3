"""The table of closed loops: shares saved and their interval by hand, begins of repetitions."""

import pytest

from lab.loop_table import LoopPair, LoopSettings, rows, starts_s, to_json


def pair(dataset: str, number: int, followed_s: float, static_s: float, moved: int = 1) -> LoopPair:
    moves = [{"sent_bytes": 8}] * moved + [{"sent_bytes": 0}]
    return LoopPair(
        dataset, False, number, 0.0, {"seconds": followed_s, "moves": moves}, {"seconds": static_s}
    )


def test_the_share_saved_has_the_t_interval_of_its_repetitions() -> None:
    found = [pair("a", 0, 90, 100), pair("a", 1, 80, 100), pair("a", 2, 70, 100), pair("b", 0, 110, 100, 0)]
    first, second = rows(found)
    half = 4.302652729911275 * 0.1 / 3**0.5  # t of 2 degrees of freedom; the deviation is 0.1
    assert first.saved.mean == pytest.approx(0.2)
    assert (first.saved.low, first.saved.high) == pytest.approx((0.2 - half, 0.2 + half))
    assert first.interval == "-4.8 to +44.8"
    assert second.saved.mean == pytest.approx(-0.1) and second.interval == "-"

    told = to_json(LoopSettings("lab", "mpc", 60, 8.0, None), found)["traces"]
    assert [one["moves"] for one in told] == [3, 0]
    assert told[1]["saved_low"] is None and told[0]["saved_low"] == first.saved.low


def test_repetitions_begin_at_equal_distances_in_the_window() -> None:
    assert starts_s(100.0, 3) == [0.0, 33.0, 66.0]
