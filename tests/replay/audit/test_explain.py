"""Explanations: the tipping point is where the policy really tips, and nothing is left out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policy.core.protocol import Decision
from policy.core.reference_plan import equal_cuts
from replay.audit import explain, logged_decisions
from replay.audit.explain import Tipping, bisect, scaled
from replay.log.run_log import RunReader
from replay.store import run_index
from replay.store.decision_codec import plan_to_json
from tests.support import toys
from tests.support.toys import Threshold, register, toy_run, without_lake
from tests.support.worlds import toy_setup
from twin.core.plan import Sync
from twin.core.plan_text import with_names
from twin.core.view import View

FOR_GOOD: toys.Steps = {(0, 1): [(60.0, 1e9)], (0, 2): [(60.0, 1e9)]}


@pytest.fixture
def run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    without_lake(monkeypatch)
    register(monkeypatch, "threshold", "Threshold")
    return toy_run(tmp_path, "threshold").run_id


@pytest.mark.parametrize("tips_at", [1.3, 3.9, 0.71, 0.26])
def test_bisection_closes_in_on_the_point(tips_at: float) -> None:
    far = 4.0 if tips_at > 1 else 0.25
    near, beyond = bisect(lambda factor: (factor > tips_at) == (tips_at > 1), 1.0, far)
    assert min(near, beyond) <= tips_at <= max(near, beyond)
    assert max(near, beyond) / min(near, beyond) < 1.0 + 2 * explain.PRECISION


def test_the_tipping_point_is_where_the_policy_tips(tmp_path: Path, run_id: str) -> None:
    found = explain.explain(tmp_path, run_id, 1)
    (point,) = found.tipping
    assert (point.link, point.direction) == ((0, 1), "below")
    assert point.threshold_bps == pytest.approx(Threshold.BOUND_BPS, rel=2 * explain.PRECISION)
    assert point.threshold_bps < Threshold.BOUND_BPS
    (text,) = found.tipping_text
    assert text.startswith("would move to d0:") and "if B(d0->d1) < " in text and "Gb/s" in text


def test_each_side_of_the_point_answers_as_said(tmp_path: Path, run_id: str) -> None:
    prepared, recorded = (
        logged_decisions.prepared_run(tmp_path, run_id),
        logged_decisions.find(tmp_path, run_id, 1),
    )
    replayed = logged_decisions.policy_replay(prepared, recorded)
    (point,) = explain.tipping_points(replayed, recorded.view, [(0, 1)])
    factor = point.threshold_bps / point.seen_bps
    beyond = replayed.ask(scaled(recorded.view, (0, 1), factor * 0.99))
    assert explain.in_words(beyond, recorded.view) == point.answer != "hold"
    short = replayed.ask(scaled(recorded.view, (0, 1), factor * (1 + 2 * explain.PRECISION)))
    assert explain.in_words(short, recorded.view) == "hold"


def test_scaling_changes_one_link_at_every_horizon(tmp_path: Path, run_id: str) -> None:
    view = logged_decisions.find(tmp_path, run_id, 0).view
    other = scaled(view, (2, 0), 0.5)
    changed = other.forecast.bandwidth_bps != view.forecast.bandwidth_bps
    assert changed[:, 2, 0].all() and changed.sum() == len(view.forecast.horizons_s)
    assert np.array_equal(other.forecast.bandwidth_bps[:, 2, 0], view.forecast.bandwidth_bps[:, 2, 0] / 2)


def test_an_explanation_has_every_part(tmp_path: Path, run_id: str) -> None:
    recorded = [e for e in RunReader(run_index.folder(tmp_path, run_id)).events() if e.type == "decided"]
    moved = next(e.payload["number"] for e in recorded[1:] if e.payload["action"] == "move")
    found = explain.explain(tmp_path, run_id, moved)
    assert found.action == "move" and found.reason == "narrow" and found.trigger in {"change", "alarm"}
    assert found.reasons and found.chosen is not None and found.chosen.startswith("d0:") and found.binding
    assert set(found.reward) == {"efficiency", "utilisation", "cost", "total", "move_s"}
    assert found.reward["move_s"] > 11
    assert set(found.baselines) >= {"static", "single", "greedy", "mpc"}
    assert all(answer["answer"] for answer in found.baselines.values())
    assert np.sum(found.traffic_bytes) == 0  # a single domain sends nothing
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert shown["domains"] == ["d0", "d1", "d2"]


def test_asking_does_not_change_the_policy(tmp_path: Path, run_id: str) -> None:
    recorded = logged_decisions.find(tmp_path, run_id, 2)
    replayed = logged_decisions.policy_replay(logged_decisions.prepared_run(tmp_path, run_id), recorded)
    first = replayed.ask(recorded.view)
    replayed.ask(replace(recorded.view, free_gpus=(4, 0, 0)))
    assert replayed.ask(recorded.view) == first


def test_mpc_as_a_baseline_decides_as_if_it_had_seen_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    monkeypatch.setattr(toys, "STEPS", FOR_GOOD)
    played = toy_run(tmp_path, "mpc").run_id
    moved = next(
        event.payload["number"]
        for event in RunReader(run_index.folder(tmp_path, played)).events()
        if event.type == "decided" and event.payload["action"] == "move" and event.payload["number"] > 0
    )
    prepared, recorded = (
        logged_decisions.prepared_run(tmp_path, played),
        logged_decisions.find(tmp_path, played, moved),
    )
    other = replace(prepared, header=replace(prepared.header, policy="static"))  # another policy
    asked = logged_decisions.baselines(other, recorded)
    assert plan_to_json(asked["mpc"].ask(recorded.view).plan) == recorded.event.payload["plan"]
    alone = logged_decisions.baselines(other, replace(recorded, views=recorded.views[-1:]))
    assert alone["mpc"].ask(recorded.view).plan is None  # nothing has paid yet that nobody saw
    for name in set(asked) - set(logged_decisions.MEMORY):
        assert asked[name].ask(recorded.view) == alone[name].ask(recorded.view)


def test_links_that_are_probed_are_those_that_carry_something() -> None:
    setup = toy_setup()
    estimator = setup.estimator()
    line = equal_cuts(estimator, (0, 2), (4, 0, 4))
    relayed = replace(line, routes=((0, 1, 2),))
    sent = {(0, 2), (2, 0)}
    assert set(explain.links_of(estimator, line, None)) == sent
    assert explain.links_of(estimator, relayed) == [(0, 1), (1, 2), (2, 0)]
    lone = equal_cuts(estimator, (0,), (4, 0, 0)).shares[0]
    copies = tuple(replace(lone, domain=k) for k in (0, 1, 2))
    ring = replace(line, shares=copies, sync=Sync(inner_steps=10))
    assert explain.links_of(estimator, ring) == [(0, 1), (1, 2), (2, 0)]
    assert explain.links_of(estimator, None) == []


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        ("greedy", toys.STEPS),
        # For good: the moves of these two have to prove themselves first.
        ("mpc", FOR_GOOD),
        ("hippo", {(0, 1): [(100.0, 2e9)]}),
    ],
)
def test_the_thresholds_of_real_policies_flip_their_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, steps: toys.Steps
) -> None:
    """As it was the policy answers as logged; at each threshold as said; short of it as logged again."""
    without_lake(monkeypatch)
    monkeypatch.setattr(toys, "STEPS", steps)
    played, checked = toy_run(tmp_path, policy), 0
    prepared = logged_decisions.prepared_run(tmp_path, played.run_id)
    for number in range(4, played.kpis.decisions):  # the step was before decision 4
        recorded = logged_decisions.find(tmp_path, played.run_id, number)
        replayed = logged_decisions.policy_replay(prepared, recorded)
        usual = replayed.ask(recorded.view)
        assert plan_to_json(usual.plan) == recorded.event.payload["plan"]
        points = explain.tipping_points(replayed, recorded.view, [(0, 1), (0, 2), (1, 2)])
        for point in points:
            assert_flips(replayed, recorded.view, point, explain.in_words(usual, recorded.view))
        checked += bool(points)
        if checked == 2:
            break
    assert checked, "when links step some link matters, slower or faster"


def assert_flips(replayed: logged_decisions.PolicyReplay, view: View, point: Tipping, usual: str) -> None:
    i, j = point.link
    factor, back = point.threshold_bps / point.seen_bps, 1 + 2 * explain.PRECISION
    outwards = 1 / back if point.direction == "below" else back
    assert (factor > 1) == (point.direction == "above")

    def asked(factor: float) -> str:
        return explain.in_words(replayed.ask(scaled(view, point.link, factor)), view)

    assert asked(factor) == point.answer != usual
    assert asked(factor * outwards) != usual  # perhaps a third answer: plans follow each other closely
    assert {asked(factor / outwards), asked(np.sqrt(factor))} == {usual}  # just inside, and half way
    names = ("d0", "d1", "d2")
    assert f"would {with_names(point.answer, names)} if B(d{i}->d{j})" in point.sentence(names)


def test_a_decision_without_any_plan_is_explained(tmp_path: Path, run_id: str) -> None:
    prepared, recorded = (
        logged_decisions.prepared_run(tmp_path, run_id),
        logged_decisions.find(tmp_path, run_id, 1),
    )
    assert recorded.event.payload["plan"] is None  # it held
    alone = replace(recorded.view, plan=None, free_gpus=(0, 0, 0))
    found = explain.of_recorded(prepared, replace(recorded, views=(alone,)))
    assert (found.chosen, found.binding, found.tipping) == (None, None, ())
    assert set(found.reward.values()) == {None} and np.sum(found.traffic_bytes) == 0
    assert all(entry["iter_s"] is None for entry in found.baselines.values())
    assert any(entry["problem"] for entry in found.baselines.values())


def test_no_pace_is_promised_of_who_holds_where_nothing_can_run(
    tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, recorded = (
        logged_decisions.prepared_run(tmp_path, run_id),
        logged_decisions.find(tmp_path, run_id, 1),
    )
    monkeypatch.setattr(Threshold, "decide", lambda self, view: Decision(None, "holds on"))
    register(monkeypatch, "greedy", "Threshold")
    for alone in (replace(recorded.view, free_gpus=(0, 0, 0)), replace(recorded.view, plan=None)):
        found = explain.of_recorded(prepared, replace(recorded, views=(alone,)))
        assert found.baselines["greedy"] == {
            "answer": "hold", "problem": None, "reason": "holds on", "iter_s": None,
        }  # fmt: skip


def test_nothing_is_promised_over_a_dead_link(tmp_path: Path, run_id: str) -> None:
    prepared, view = (
        logged_decisions.prepared_run(tmp_path, run_id),
        logged_decisions.find(tmp_path, run_id, 1).view,
    )
    assert view.plan is not None and len(view.plan.order) > 1
    assert explain.reward(prepared, view, view.plan)["efficiency"] is not None
    i, j = view.plan.order[:2]
    assert set(explain.reward(prepared, scaled(view, (i, j), 0.0), view.plan).values()) == {None}
