"""Predictions against what came, by hand and on a whole run."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.core.errors import NotFoundError
from replay.log.events import Event
from replay.metrics import filter_health, store_status
from replay.metrics.prediction_accuracy import DomainErrors, Errors, LinkErrors, merged
from replay.store.decision_codec import plan_to_json, view_to_json
from tests.support.toys import toy_run, without_lake
from tests.support.views import flat, view
from tests.support.worlds import toy_setup
from twin.core.view import Forecast
from twin.estimation.resource_use import plan_costs
from twin.scenario import prepare

S = 10**9
SETUP = toy_setup(2)
ESTIMATOR = SETUP.estimator()
PLAN = ESTIMATOR.make((0, 1), (17, 17), 2, [(2, 1), (2, 1)], 1)
THERE, BACK = (0, 1), (1, 0)


def decided(
    bps: float = 2e9,
    *,
    at_s: float = 0,
    iter_s: float | None = None,
    slowdown: tuple[float, float] = (1, 1),
    job: str = "",
) -> Event:
    """Both links are forecast alike at 0 s and 60 s, with a deviation of 0.1."""
    rows = np.stack([flat(2, bps).bandwidth_bps] * 2)
    widths = np.array([[1.0, 2.0], [1.2815516, 1.9599640]])
    forecast = Forecast(np.array([0.0, 60.0]), rows, np.full((2, 2, 2), 0.1), flat(2).latency_s, widths)
    shown = replace(view(ESTIMATOR, flat(2)), forecast=forecast, slowdown=np.array(slowdown, float))
    payload = {"observation": view_to_json(shown), "predicted_iter_s": iter_s}
    return Event(0, round(at_s * S), "decided", 1, job, payload)


def observed(at_s: float, links: Mapping[tuple[int, int], float]) -> Event:
    samples = [[i, j, bps, 0.05] for (i, j), bps in links.items()]
    return Event(
        0, round(at_s * S), "link_observed", 1, "", {"sampled_ns": round(at_s * S), "samples": samples}
    )


def done(durations_s: list[tuple[int, float]], slow: tuple[float, float] = (1, 1), job: str = "") -> Event:
    count = sum(n for n, _ in durations_s)
    nominal = plan_costs(ESTIMATOR, PLAN, np.ones(2)).compute_ns
    payload: dict[str, Any] = {
        "count": count,
        "durations": [[n, round(s * S)] for n, s in durations_s],
        "compute_ns": [round(count * ns * factor) for ns, factor in zip(nominal, slow, strict=True)],
    }
    return Event(0, 0, "iteration_done", 1, job, payload)


def applied(job: str = "") -> Event:
    return Event(0, 0, "plan_applied", 1, job, {"plan": plan_to_json(PLAN)})


def test_errors_by_hand() -> None:
    errors = Errors()
    assert (errors.bias, errors.mape, errors.covered) == (None, None, None)
    errors.add(2.0, 1.0)
    errors.add(1.0, 2.0, 3)
    assert (errors.count, errors.bias, errors.mape) == (4, -0.125, 0.625)
    both = merged([errors, Errors(4, 1.0, 1.0, 2, 3)])
    assert (both.count, both.bias, both.covered) == (8, 0.0625, (0.25, 0.375))


def test_forecasts_are_held_to_the_first_telemetry_at_or_after_their_horizon() -> None:
    links = LinkErrors(noise=0.0)
    for event in (
        decided(2e9, at_s=10),
        observed(0, {THERE: 9e9, BACK: 9e9}),  # sampled before the forecast
        observed(30, {THERE: 2e9, BACK: 1.7e9}),
        observed(60, {THERE: 9e9, BACK: 9e9}),  # of no horizon
        observed(90, {THERE: 1e9, BACK: 2.0e9}),
        decided(2e9, at_s=100),
    ):
        links.add(event)
    assert links.horizons_s == (0.0, 60.0)
    (now, ahead), (now_back, ahead_back) = links.found[THERE], links.found[BACK]
    assert (now.count, now.bias, now.covered) == (1, 0.0, (1.0, 1.0))
    assert (ahead.count, ahead.bias, ahead.covered) == (1, 1.0, (0.0, 0.0))
    assert (now_back.bias, now_back.covered) == (pytest.approx(2 / 1.7 - 1), (0.0, 1.0))  # 1.6 deviations
    assert ahead_back.count == 1


def test_noise_of_telemetry_widens_the_intervals_and_dead_links_are_not_judged() -> None:
    for noise, inside in ((0.0, 0.0), (0.1, 1.0)):
        links = LinkErrors(noise)
        links.add(decided(2e9))
        links.add(observed(30, {THERE: 2e9 * np.exp(0.15), BACK: 0.0}))
        assert links.found[THERE][0].covered == (inside, 1.0)
        assert BACK not in links.found


def test_the_widest_samples_that_a_log_may_hold_are_folded() -> None:
    """A forecast of 5e-324 bit/s against 1e15: their ratio is 0, and 0 has no logarithm."""
    links = LinkErrors(0.05)
    for forecast_bps, seen_bps in ((5e-324, 1e15), (1e15, 5e-324)):
        links.add(decided(forecast_bps))
        links.add(observed(30, {THERE: seen_bps}))
    errors = links.found[THERE][0]
    assert errors.count == 2 and errors.covered == (0.0, 0.0)
    assert errors.mape is not None and np.isfinite(errors.mape)


def test_domains_answer_for_their_computing_time_at_the_slowdown_that_was_shown() -> None:
    domains = DomainErrors({"": ESTIMATOR}, 2)
    for event in (
        decided(iter_s=10.0),
        applied(),
        done([(2, 10.0), (2, 20.0)]),
        done([(4, 10.0)], (1.25, 1)),
    ):
        domains.add(event)
    first, second = domains.computing
    assert (first.count, first.bias) == (8, pytest.approx((1 / 1.25 - 1) / 2))
    assert second.mape == pytest.approx(0.0, abs=1e-9)
    assert (domains.iterations.count, domains.iterations.bias) == (8, pytest.approx(-0.125))
    assert domains.nis[0] > domains.nis[1]
    domains.add(decided(slowdown=(1.25, 1)))
    domains.add(done([(8, 10.0)], (1.25, 1)))
    # What was known is no error; communication inside a domain does not slow down with it.
    assert first.mape == pytest.approx((1 - 1 / 1.25) / 4, abs=1e-3)


def test_each_job_is_held_to_its_own_prediction_and_unknown_jobs_to_none() -> None:
    domains = DomainErrors({"a": ESTIMATOR}, 2)
    for job, expected in (("a", 10.0), ("b", 20.0)):
        domains.add(decided(iter_s=expected, job=job))
        domains.add(applied(job))
    domains.add(done([(1, 10.0)], job="a"))
    domains.add(done([(1, 20.0)], job="b"))
    assert (domains.iterations.count, domains.iterations.mape) == (2, 0.0)
    assert domains.computing[0].count == 1


def test_status_shows_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    done_run = toy_run(tmp_path, "greedy")
    found = store_status.status(tmp_path).to_json()["health"]
    assert found["run"] == done_run.run_id and found["problem"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    worst = max(found["links"], key=lambda link: link["mape"])
    assert (worst["src"], worst["dst"]) == ("d0", "d1")  # the link that steps
    assert 0 < worst["mape"] < 1 and worst["nis"] > 1
    assert [row["horizon_s"] for row in found["horizons"]] == [0, 60, 300]
    assert all(0 <= row["inside_80"] <= row["inside_95"] <= 1 for row in found["horizons"])
    assert all(row["mape"] == pytest.approx(0, abs=1e-6) for row in found["domains"] if row["iterations"])
    assert found["iteration"]["iterations"] > 0 and found["iteration"]["mape"] < 0.5


def test_without_the_data_set_predictions_are_still_held_to_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    done_run = toy_run(tmp_path, "greedy")

    def gone(*_: object, **__: object) -> None:
        raise NotFoundError("the lake has no link samples of 'toy'")

    monkeypatch.setattr(prepare, "prepare", gone)
    found = filter_health.of(tmp_path, done_run.run_id)
    assert found.problem is not None and "toy" in found.problem
    assert all(link.nis is None and link.healthy is None and link.count > 0 for link in found.links)
    assert found.iteration.iterations > 0 and found.unhealthy == 0.0
