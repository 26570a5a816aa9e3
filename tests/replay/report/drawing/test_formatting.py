"""Numbers, times, sizes and plans as text of the report."""

import pytest

from replay.report.drawing.formatting import number, plain, size, time_unit


def test_numbers_and_times_are_short() -> None:
    assert [number(v) for v in (0, 0.04, 830, 999.7, 1250, 2.5e9, 7e13)] == [
        "0",
        "0.04",
        "830",
        "1 k",
        "1.25 k",
        "2.5 G",
        "70 T",
    ]
    assert number(1.2133e15) == "1.21 P"
    assert [time_unit(s)[1] for s in (5, 600, 10_000, 200_000)] == ["seconds", "minutes", "hours", "days"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (22_306.4, "22,306"), (1180.4, "1,180"), (153.31, "153.3"), (0.08333, "0.08333"),
     (-1e-5, "-0.00001"), (999.96, "1,000"), (5e-12, "0"), (-62.108, "-62.11"), (120.0, "120")],
)  # fmt: skip
def test_figures_are_written_out(value: float, text: str) -> None:
    assert plain(value) == text
    assert plain(value, sign="+") == (text if text[0] == "-" else f"+{text}")


def test_sizes_have_a_space_before_their_unit() -> None:
    assert [size(v) for v in (0, 999, 2.31e13)] == ["0 B", "999 B", "23.1 TB"]
