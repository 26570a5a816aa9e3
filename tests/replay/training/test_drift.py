"""Drift: what counts as one, told once, forgotten only after calm, whatever restarts in between."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import DamageError, LockedError, NotFoundError
from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.metrics import filter_health
from replay.run import whatif
from replay.store import run_index
from replay.training import drift, retrain, schedule
from replay.training.drift import LINKS, SHORTFALL, Reading
from tests.support.toys import toy_run, without_lake
from tests.support.worlds import toy_scenario, toy_setup
from twin.scenario import prepare

CALM = Reading("r", 0.0, 0.0)
BETWEEN = Reading("r", (LINKS[0] + LINKS[1]) / 2, (SHORTFALL[0] + SHORTFALL[1]) / 2)
BY_FILTER = Reading("r", LINKS[1], None)
BY_REWARD = Reading("r", 0.0, SHORTFALL[1])


def decided(predicted: float | None, job: str = "") -> Event:
    return Event(0, 0, "decided", 1, job, {"predicted_iter_s": predicted})


def done(count: int, seconds: float, job: str = "") -> Event:
    return Event(
        0, 0, "iteration_done", 1, job, {"count": count, "durations": [[count, round(seconds * 1e9)]]}
    )


def test_shortfall_by_hand() -> None:
    assert drift.shortfall([decided(10.0), done(3, 12.0), decided(20.0), done(1, 18.0)]) == pytest.approx(
        54 / 50 - 1
    )
    assert drift.shortfall([done(3, 12.0), decided(None), done(3, 12.0)]) is None
    assert drift.shortfall([decided(10.0)]) is None
    old = [decided(10.0), done(1, 30.0)]
    new = [event for _ in range(drift.DECISIONS) for event in (decided(10.0), done(1, 11.0))]
    assert drift.shortfall(old + new) == pytest.approx(0.1)


def test_each_job_is_held_to_its_own_decisions() -> None:
    long, short = (
        (decided(10.0, "long"), done(2, 11.0, "long")),
        (decided(1.0, "short"), done(5, 1.0, "short")),
    )
    mixed = [long[0], short[0], long[1], short[1]]
    assert drift.shortfall(mixed) == pytest.approx((22 + 5) / (20 + 5) - 1)


def test_thresholds_differ() -> None:
    assert BY_FILTER.drifting and BY_REWARD.drifting and not BETWEEN.drifting
    assert CALM.calm and not BETWEEN.calm and not BY_FILTER.calm and not BY_REWARD.calm


@pytest.mark.parametrize("first", [BY_FILTER, BY_REWARD])
def test_a_drift_is_reported_once_until_it_has_been_calm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Reading
) -> None:
    readings = [CALM, BETWEEN, first, BETWEEN, first, CALM, BETWEEN, first, first]
    monkeypatch.setattr(drift, "newest", lambda store, scenario: "r")
    fired = []
    for number, found in enumerate(readings):
        monkeypatch.setattr(drift, "reading", lambda store, run, found=found: found)
        reported = drift.due(tmp_path, "s")
        if reported is not None:
            fired.append(number)
            assert drift.due(tmp_path, "s") == reported  # killed before it was acted on: due again
            drift.acknowledge(tmp_path, "s", reported)
        assert drift.due(tmp_path, "other") in (None, found)
    assert fired == [2, 7]
    assert drift.drifting(tmp_path, "s") and not drift.drifting(tmp_path, "other")


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    for text in ("{", '{"schema": "x"}', "[]"):
        (tmp_path / drift.STATE).write_text(text)
        with pytest.raises(DamageError, match=drift.STATE):
            drift.drifting(tmp_path, "s")


def test_experiments_are_not_the_world_of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    assert drift.newest(tmp_path, "toy-3") is None
    assert drift.due(tmp_path, "toy-3") is None
    mine = toy_run(tmp_path, "static")
    whatif.what_if(tmp_path, mine.run_id, "single")
    assert drift.newest(tmp_path, "toy-3") == mine.run_id
    assert drift.newest(tmp_path, "another") is None
    found = drift.reading(tmp_path, mine.run_id)
    assert found.unhealthy == 0.0  # a step that the filter has followed is no drift
    assert found.shortfall == drift.shortfall(RunReader(run_index.folder(tmp_path, mine.run_id)).events())


def test_a_watch_meets_a_retraining_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "due", lambda store, scenario: BY_FILTER)
    monkeypatch.setattr(schedule.prepare, "load", lambda name: toy_scenario())

    def locked(*_: object, **__: object) -> None:
        raise LockedError("under way")

    monkeypatch.setattr(retrain, "retrain", locked)
    schedule.watched(str(tmp_path), "toy-3", None)
    assert not drift.drifting(tmp_path, "toy-3")  # not acted on yet


def test_a_link_that_scatters_more_than_in_training_is_drifting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    restless = [(float(t), 2e9 * float(np.exp(0.8 * rng.standard_normal()))) for t in range(30, 3600, 30)]
    setup = toy_setup(seconds=3600, steps={(0, 1): restless})
    monkeypatch.setattr(prepare, "prepare", lambda *_, **__: setup)
    run = toy_run(tmp_path, "static")
    found = drift.reading(tmp_path, run.run_id)
    assert found.unhealthy == pytest.approx(1 / 6)
    health_of = {(link.src, link.dst): link for link in filter_health.of(tmp_path, run.run_id).links}
    assert health_of["d0", "d1"].healthy is False and health_of["d1", "d0"].healthy is True


def test_a_run_without_its_measurements_has_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    mine = toy_run(tmp_path, "static")
    monkeypatch.undo()
    with pytest.raises(NotFoundError, match=f"{mine.run_id}: .*link samples"):
        drift.reading(tmp_path, mine.run_id)


def test_a_run_that_was_killed_before_anything_was_durable_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    mine = toy_run(tmp_path, "static")
    (tmp_path / "runs" / "killed").mkdir()
    assert drift.newest(tmp_path, "toy-3") == mine.run_id
