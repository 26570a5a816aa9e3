"""Numbers, times, sizes and plans as text of the report."""

import pytest

from replay.report.drawing.formatting import named, number, plain, plan_line, size, time_unit
from replay.store.decision_codec import plan_from_json


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


def test_numbers_of_domains_become_names() -> None:
    assert named("stages 0-1 and back (d1-d0), d2", ["oslo", "rome"]) == "stages 0-1 and back (rome-oslo), d2"


def test_a_plan_in_a_reason_is_written_as_everywhere_on_the_page() -> None:
    names = ["oslo", "rome"]
    share = {"layers": 7, "tp": 4, "pp": 1, "gpus": list(range(8))}
    for changed, way in (
        ({}, ""),
        ({"schedule": "crosspipe", "p2p": "overlapped"}, " · crosspipe, overlapped"),
        ({"schedule": "interleaved", "chunks": 2}, None),
        ({"sync": {"inner_steps": 64, "bytes_per_parameter": 4.0}}, None),
    ):
        fields = {
            "shares": [{"domain": k, **share} for k in (1, 0)], "dp": 2, "micro_batch": 1,
            "micro_batches": 16, "schedule": "1f1b", "extra_warmup": 0, "p2p": "blocking",
            "recompute": "full", "zero": 0, **changed,
        }  # fmt: skip
        text = named(f"gains: {plan_from_json(fields)}", names)
        assert "L(tp" not in text and "d1" not in text and "mbs" not in text
        if way is not None:
            assert text == f"gains: {plan_line(fields, names)}"
            assert text == f"gains: rome 7 (tp 4, pp 1) → oslo 7 (tp 4, pp 1) · dp 2 · 16 x 1{way}"


def test_sizes_have_a_space_before_their_unit() -> None:
    assert [size(v) for v in (0, 999, 2.31e13)] == ["0 B", "999 B", "23.1 TB"]
