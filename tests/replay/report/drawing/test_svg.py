"""Ticks and boxes of charts."""

from replay.report.drawing.svg import Chart, ticks


def test_ticks_are_round() -> None:
    assert ticks(10.0, 4) == [0.0, 2.5, 5.0, 7.5, 10.0]
    assert ticks(34.0, 4) == [0.0, 10.0, 20.0, 30.0]
    assert ticks(2.36e9, 3) == [0.0, 1e9, 2e9]
    assert ticks(0.0, 3) == [0.0]
    assert ticks(float("nan"), 3) == [0.0]


def test_nothing_draws_nothing() -> None:
    chart = Chart(10.0, 1.0, "s")
    chart.line([], "")
    chart.dots([], "")
    assert chart.marks == []


def test_a_chart_clips_to_its_box() -> None:
    chart = Chart(10.0, 2.0, "s")
    assert (chart.x(5.0), chart.x(20.0), chart.y(1.0), chart.y(9.0), chart.y(-1.0)) == (
        500.0,
        1000.0,
        150.0,
        0.0,
        300.0,
    )
    empty = Chart(0.0, 0.0, "s")
    assert (empty.x(1.0), empty.y(1.0)) == (0.0, 300.0)


def test_a_chart_may_begin_below_nothing() -> None:
    chart = Chart(3.0, 0.1, "", low=-0.3, axis="updates")
    assert (chart.y(-0.3), chart.y(0.1), chart.y(-0.1)) == (300.0, 0.0, 150.0)
    assert ticks(0.1, 4, -0.3) == [-0.3, -0.2, -0.1, 0.0, 0.1]
    close = Chart(3.0, 5.002, "", low=5.001)
    assert len({text for _, text in close.y_labels}) == len(close.y_labels) > 1  # more digits where needed
