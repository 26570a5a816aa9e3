"""Columns of charts: small, exact where it counts, harmless in a script element."""

import hashlib
import json
from itertools import accumulate

import pytest

from replay.report.drawing.plot import LiveChart, embedded
from replay.report.drawing.section import FOLDER


def data(plot: LiveChart) -> dict:  # type: ignore[type-arg]
    return json.loads(str(plot.columns))


def test_times_are_steps_less_the_one_before_and_values_have_five_digits() -> None:
    plot = LiveChart(3600.0, 2.5e9, "bit/s", "a → b")
    plot.dots([(0.0, 1.2345678e9), (30.04, 2e9), (3600.0, 5e8)], "telemetry", "soft")
    found = data(plot)
    assert (
        plot.quantum == 0.1 and found["right"] == 36_000 and found["unit"] == "Gbit/s" and found["top"] == 2.5
    )
    (mark,) = found["marks"]
    assert list(accumulate(mark["dx"])) == [0, 300, 36_000] and mark["ys"] == [[1.2346, 2, 0.5]]
    assert plot.label == "a → b, in Gbit/s. telemetry: 0.5 to 2, mean 1.245."


def test_a_gap_is_null_and_a_band_has_three_columns() -> None:
    plot = LiveChart(10.0, 4.0, "s")
    plot.band([(0.0, 2.0, 1.0, 3.0), (5.0, None, None, None)], "filter")
    assert data(plot)["marks"][0]["ys"] == [[2, None], [1, None], [3, None]]


def test_boxes_and_moments_are_clipped_to_the_run_and_moments_on_a_step_are_one() -> None:
    plot = LiveChart(10.0, 4.0, "layers")
    plot.box(-1.0, 20.0, 0, 4, "c0", "oslo: 4 layers")
    plot.moments([5.0, 5.00001, 6.0], "bad", "filter alarm")
    plot.moments([], "bad", "nothing")
    box, moments = data(plot)["marks"]
    assert box["at"] == [0, 100_000, 0, 4] and moments["at"] == [50_000, 60_000]


def test_ticks_are_marks_of_their_own_kind() -> None:
    plot = LiveChart(10.0, 4.0, "bit/s")
    plot.ticks([5.0, 5.00001, 6.0], "wait", "filter alarm")
    (ticks,) = data(plot)["marks"]
    assert ticks == {"kind": "ticks", "at": [50_000, 60_000], "colour": "wait", "name": "filter alarm"}


def test_units_grow_with_the_values() -> None:
    assert (
        LiveChart(1.0, 3e7, "tokens").shown_unit == "million tokens"
        and LiveChart(1.0, 3e7, "USD").factor == 1.0
    )
    assert (
        LiveChart(1.0, 9.9e5, "bit/s").shown_unit == "kbit/s"
        and LiveChart(1.0, 10.0, "bit/s").shown_unit == "bit/s"
    )


def test_nothing_draws_nothing() -> None:
    plot = LiveChart(0.0, 0.0, "s")
    plot.line([], "a")
    plot.dots([], "a")
    assert plot.marks == [] and data(plot)["right"] == 0


def test_no_tag_can_begin_in_data() -> None:
    text = str(embedded({"a": "</script><!--\u2028"}))
    assert "<" not in text and "\u2028" not in text and json.loads(text) == {"a": "</script><!--\u2028"}


def test_data_that_are_no_numbers_are_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embedded([float("nan")])


def test_the_chart_library_is_the_one_that_its_note_names() -> None:
    note = (FOLDER / "uplot" / "README.md").read_text(encoding="utf-8")
    for name in ("uPlot.iife.min.js", "uPlot.min.css"):
        assert f"{hashlib.sha256((FOLDER / 'uplot' / name).read_bytes()).hexdigest()} {name}" in note
    assert "MIT License" in (FOLDER / "uplot" / "LICENSE").read_text(encoding="utf-8")
