"""The tables of regret hold what cells hold, trained or not."""

from benchmarks.hippo.hindsight import KEPT, PATH
from benchmarks.hippo.regret_page import BASELINES, LEARNED, OWN, SHIPS, Json, gains, ours, page, trainings


def cell(title: str, iterations: dict[str, float], training_s: float) -> Json:
    """Returns a cell whose bound does 100 iterations."""
    return {
        "title": title, "seed": 0, "code": "code", "training_s": training_s, "bound": 100.0,
        "scores": [("imitation", 0.1), ("ppo", 0.2)] if training_s else [], "problems": {},
        "runs": {who: [count, 0.0, 1.0] for who, count in iterations.items()},
    }  # fmt: skip


HINDSIGHT = {PATH: 99.5, KEPT: 98.0}
ALL = dict.fromkeys((*BASELINES, *LEARNED), 90.0)
WHOLE = [cell("quad-70b", ALL | {OWN: 97.0, "mpc": 96.0} | HINDSIGHT, 60.0)]
SHORT = [cell("planet-405b", {"static": 10.0, "history": 94.0, "mpc": 95.0, SHIPS: 95.0, KEPT: 96.0}, 0.0)]


def test_hippo_is_the_trained_one_where_there_is_a_training() -> None:
    assert ours(WHOLE)[0] == OWN
    assert trainings(WHOLE) == "1"
    assert ours(SHORT)[0] == SHIPS
    assert trainings(SHORT) == "none: as it ships"


def test_what_has_not_run_has_no_gain() -> None:
    assert gains(SHORT, SHIPS, "dtfm") is None
    found = gains(WHOLE, OWN, "mpc")
    assert found is not None
    assert round(found.mean, 4) == round(100 * (97 / 96 - 1), 4)


def test_the_page_divides_regret_by_what_hindsight_leaves() -> None:
    text = page({"quad-70b": WHOLE, "planet-405b": SHORT})
    assert "| quad-70b | 3.0 | 0.5 | 2.0 | 0.5 | 2.5 |" in text
    assert "| planet-405b | 5.0 | - | 4.0 | 4.0 | 1.0 |" in text


def test_a_set_without_training_is_in_no_table_of_trainings() -> None:
    before, after = page({"quad-70b": WHOLE, "planet-405b": SHORT}).split("## Training on the own past")
    assert "planet-405b" in before
    assert "planet-405b" not in after
    assert "| planet-405b | 90.0 | - | - | 6.0 | 5.0 | 5.0 | - | none: as it ships |" in before
