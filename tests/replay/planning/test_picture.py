"""Pictures of plans: equal bytes, every site named, the binding link in red, operations joined."""

from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from replay.planning.candidates import EQUAL, planned
from replay.planning.figures import PlanFigures, figures
from replay.planning.picture import RED, _joined, picture
from replay.planning.record import Record
from tests.support.worlds import toy_setup
from twin.core.plan import Plan
from twin.estimation.link_state_times import States


def chosen() -> tuple[Record, PlanFigures]:
    setup = toy_setup(3, bps=2e9, weights={"efficiency": 1.0})
    states = States.of([setup.wan.at(0)])
    made = Record(setup.scenario, setup.estimator(), states, None, "toy", "all", 0.0, "")
    plan = planned(made, [EQUAL])[EQUAL]
    assert isinstance(plan, Plan)
    found = figures(made, plan, EQUAL)
    assert found is not None
    return made, found


def test_a_picture_names_sites_and_links_and_is_the_same_each_time() -> None:
    made, found = chosen()
    drawn = picture(made, found, Path("plan.svg"))
    assert drawn == picture(made, found, Path("plan.SVG"))
    text = drawn.decode()
    for words in ("d0", "d1", "d2", "2 Gb/s", "4 of 4 A100-80", "forward", "backward", "if doubled"):
        assert f"<!-- {words}" in text or words in text, words
    assert found.binding_link is not None and RED in text
    assert picture(made, found, Path("plan.png")).startswith(b"\x89PNG")


def test_another_format_is_refused() -> None:
    with pytest.raises(UsageError, match=r"must end in \.svg or \.png"):
        picture(*chosen(), Path("plan.pdf"))


def test_operations_of_a_kind_that_nearly_touch_are_one_bar() -> None:
    second = 10**9
    operations = [
        ("forward", 0, 0, 0, second),
        ("forward", 0, 1, second + 1000, 2 * second),
        ("forward", 0, 2, 3 * second, 4 * second),
        ("backward", 0, 0, 2 * second, 3 * second),
        ("down", 0, 0, second, 2 * second),
    ]
    assert _joined(operations, 0.1) == {
        (0, "forward"): [(0.0, 2.0), (3.0, 1.0)],
        (0, "backward"): [(2.0, 1.0)],
    }
