"""Predicted against observed: by hand, and through `twin status` on a run in a toy world."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.units import NS_PER_S
from replay import accuracy, status
from replay.accuracy import Errors
from replay.events import Event
from tests.replay.toys import toy_run, without_lake
from twin.kalman import LinkFilter, LinkParameters
from twin.ou import OuParameters


def event(kind: str, payload: dict[str, Any], job: str = "") -> Event:
    return Event(0, 0, kind, 1, job, payload)


def decided(predicted: float | None, job: str = "") -> Event:
    return event("decided", {"predicted_iter_s": predicted}, job)


def done(durations: list[tuple[int, float]], active: list[int], job: str = "") -> Event:
    rounded = [[count, round(seconds * NS_PER_S)] for count, seconds in durations]
    return event("iteration_done", {"durations": rounded, "active_ns": active}, job)


def telemetry(at_s: int, samples: dict[tuple[int, int], float]) -> Event:
    rows = [[i, j, bps, 0.05] for (i, j), bps in samples.items()]
    return event("link_observed", {"sampled_ns": at_s * NS_PER_S, "samples": rows})


def test_domains_answer_for_the_iterations_they_took_part_in() -> None:
    first, second, idle = accuracy.of_domains(
        [
            done([(9, 1.0)], [1, 1, 0]),  # nothing was predicted yet
            decided(11.0),
            done([(3, 10.0), (1, 22.0)], [1, 0, 0]),
            decided(8.0),
            done([(4, 10.0)], [1, 1, 0]),
            decided(None),
            done([(9, 1.0)], [1, 1, 0]),
        ],
        3,
    )
    assert (first.count, second.count, idle.count) == (8, 4, 0)
    assert first.bias == pytest.approx((3 * 0.1 - 0.5 - 4 * 0.2) / 8)
    assert first.mape == pytest.approx((3 * 0.1 + 0.5 + 4 * 0.2) / 8)
    assert second.bias == pytest.approx(-0.2)
    assert idle == Errors() and idle.bias is None and idle.mape is None


def test_each_job_is_held_to_its_own_prediction() -> None:
    found = accuracy.of_domains(
        [decided(10.0, "a"), decided(20.0, "b"), done([(1, 10.0)], [1], "a"), done([(1, 20.0)], [1], "b")], 1
    )
    assert (found[0].count, found[0].mape) == (2, 0.0)


def test_links_answer_for_the_telemetry_they_forecast_not_for_dead_ones() -> None:
    parameters = OuParameters.of(np.full(2, np.log(2e9)), tau_s=1e9, sd=1e-3, r=1e-2)
    stubborn = LinkParameters(parameters, parameters, parameters, parameters)
    filter_ = LinkFilter(stubborn, 2, [0])
    there, back = (0, 1), (1, 0)
    found = accuracy.of_links(
        [
            telemetry(0, {there: 1e9, back: 2e9}),
            telemetry(30, {there: 4e9, back: 0.0}),
            telemetry(60, {there: 2e9, back: 2e9}),  # the way back was dead until now
        ],
        filter_,
    )
    assert (found[there].count, found[back].count) == (3, 1)
    assert found[there].bias == pytest.approx((1 - 0.5 + 0) / 3, abs=1e-3)
    assert found[there].mape == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-3)
    assert found[back].bias == pytest.approx(0.0, abs=1e-9)


def test_status_shows_both_for_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    done_run = toy_run(tmp_path, "greedy")
    found = status.status(tmp_path).to_json()
    assert found["health_run"] == done_run.run_id
    assert len(found["iterations"]) == 3 and any(row["iterations"] > 0 for row in found["iterations"])
    assert all(
        (row["bias"] is None) == (row["iterations"] == 0) and (row["mape"] or 0.0) >= abs(row["bias"] or 0.0)
        for row in found["iterations"]
    )
    worst = max(found["health"], key=lambda link: link["mape"])
    assert (worst["src"], worst["dst"]) == ("d0", "d1")  # the link that steps
    assert 0 < worst["mape"] < 1
