"""A run is logged completely, is the same every time, survives kill -9; no answer of a policy breaks it."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import InfeasibleError, NotFoundError, TwinError, UsageError
from policy.baselines.static import Static
from policy.core import registry
from policy.core.protocol import Decision
from replay.log.run_log import RunReader
from replay.run import loop, runner
from replay.run.decision_guard import DecisionGuard
from replay.sql import query
from replay.store import checkpoint_registry, run_header, run_index
from replay.store.decision_codec import digest, plan_from_json, plan_to_json, view_from_json, view_to_json
from tests.support.histories import killed
from tests.support.plays import plan_over
from tests.support.toys import Threshold, register, toy_run, without_lake
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.facts import Trigger
from twin.core.view import Forecast, View
from twin.estimation.estimator import Estimator
from twin.world.world import World


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    return tmp_path / "store"


def elsewhere(
    repository: Path, store: Path, policy: str, *more: str, hash_seed: str = "0", threads: str = "1"
) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads}
    command = [sys.executable, "-m", "tests.support.toys", str(store), policy, *more]
    return subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=120
    )


def test_what_an_answer_asks_for() -> None:
    setup = toy_setup(3)
    plan = plan_over(setup, (0, 1), (17, 17))
    turned, other = replace(plan, extra_warmup=1), plan_over(setup, (1, 0), (17, 17))
    asked = [loop.action(*pair) for pair in ((plan, None), (plan, plan), (plan, turned), (plan, other))]
    assert asked == ["hold", "hold", "turn", "move"]
    assert loop.action(None, plan) == "move"


def test_everything_that_happened_is_in_the_log(store: Path) -> None:
    done = toy_run(store)
    events = list(RunReader(run_index.folder(store, done.run_id)).events())
    assert [event.seq for event in events] == list(range(len(events)))
    assert events[0].type == "run_started" and events[-1].type == "run_finished"
    triggered = [e.payload["number"] for e in events if e.type == "triggered"]
    answered = [e.payload["number"] for e in events if e.type == "decided"]
    assert triggered == answered == list(range(len(answered))) and len(answered) >= 10
    moves = sum(e.type == "plan_applied" for e in events)
    assert moves == sum(e.type == "decided" and e.payload["action"] == "move" for e in events) > 1
    assert done.digest == RunReader(run_index.folder(store, done.run_id)).digest()
    assert done.kpis.tokens == events[-1].payload["totals"]["tokens"] > 0


def test_what_questions_about_a_large_run_need_is_made_when_it_ends(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = toy_run(store, "static")
    assert not (store / "cache" / small.run_id).exists()
    monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", 10)
    large = toy_run(store, "static")
    notes: list[str] = []
    answer = query.query(
        store, f"SELECT count(*) FROM decisions WHERE run = '{large.run_id}'", note=notes.append
    )
    assert answer.to_pylist()[0]["count_star()"] == large.kpis.decisions
    assert notes and all(note.startswith(f"{small.run_id}:") for note in notes)


def test_latency_is_measured_and_stays_outside_the_digest(store: Path) -> None:
    done = toy_run(store)
    decided = [e for e in RunReader(run_index.folder(store, done.run_id)).events() if e.type == "decided"]
    assert all(e.wall["coordination_s"] >= e.wall["latency_s"] > 0 for e in decided)
    assert "latency" not in json.dumps([list(e.payload) for e in decided])
    assert toy_run(store).digest == done.digest


def test_json_has_its_schema(store: Path) -> None:
    shown = json.loads(json.dumps(toy_run(store, "static").to_json(), allow_nan=False))
    assert shown["schema"] == "twin.replay/1"
    assert set(shown) == {"schema", "run", "digest", "kpis", "chain_head", "notes"}
    assert len(shown["digest"]) == len(shown["chain_head"]) == 64


def test_names_of_runs(store: Path) -> None:
    first, second = toy_run(store, "static"), toy_run(store, "static")
    assert second.run_id == f"{first.run_id}-2"
    assert run_index.find(store, first.run_id) == first.run_id
    assert run_index.find(store, "latest") == second.run_id
    with pytest.raises(NotFoundError, match="2 runs begin so"):
        run_index.find(store, "toy-3-static")
    with pytest.raises(NotFoundError, match="no such run"):
        run_index.find(store, "other")


def test_another_seed_is_another_run(store: Path) -> None:
    assert toy_run(store, seed=1).digest != toy_run(store, seed=2).digest


def test_two_processes_with_different_hash_seeds_and_threads_agree(repository: Path, store: Path) -> None:
    policies = ("static", "single", "greedy", "mpc")
    one = elsewhere(repository, store / "a", ",".join(policies), hash_seed="1", threads="1")
    two = elsewhere(repository, store / "b", ",".join(policies), hash_seed="2", threads="8")
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    assert one.stdout == two.stdout
    assert one.stdout.split() == [toy_run(store, policy).digest for policy in policies]


@pytest.mark.parametrize("permille", [150, 800])
def test_kill_and_resume_ends_with_the_same_digest(repository: Path, store: Path, permille: int) -> None:
    assert elsewhere(repository, store, "greedy", str(permille)).returncode == -9
    (run_id,) = run_index.all_ids(store)
    reader = RunReader(run_index.folder(store, run_id))
    stored = list(reader.events())
    assert stored and not reader.finished
    with pytest.raises(NotFoundError, match="not finished"):
        runner.result(store, run_id)
    done = runner.resume(store, run_id)
    assert done.digest == toy_run(store, "greedy").digest
    assert list(reader.events())[: len(stored)] == stored
    assert "complete already" in runner.resume(store, run_id).notes[-1]


def test_resume_refuses_other_code(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = toy_run(store).run_id
    killed(run_index.folder(store, run_id))
    monkeypatch.setattr(runner, "code_version", lambda: {"version": "9", "sources": "f" * 64})
    with pytest.raises(TwinError, match="its code was"):
        runner.resume(store, run_id)


def test_a_run_that_cannot_start_leaves_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Threshold, view: View) -> Decision:
        raise InfeasibleError("nothing fits")

    register(monkeypatch, "threshold", "Threshold")
    monkeypatch.setattr(Threshold, "decide", never)
    with pytest.raises(InfeasibleError, match="nothing fits"):
        toy_run(store, "threshold")
    with pytest.raises(UsageError, match="unknown policy"):
        toy_run(store, "gredy")
    monkeypatch.setattr(checkpoint_registry, "that_ships", lambda store: None)  # none was installed
    with pytest.raises(NotFoundError, match="twin train"):
        toy_run(store, "hippo")
    assert not store.exists()


def first_view() -> tuple[Estimator, View]:
    setup = toy_setup()
    world = World(setup)
    trigger = next(fact for fact in world if isinstance(fact, Trigger))
    assert trigger.view is not None
    return Estimator(setup.cluster, setup.job), trigger.view


def test_views_and_plans_survive_json_exactly() -> None:
    estimator, view = first_view()
    plan = estimator.make((0, 1), (17, 17), 2, ((2, 1), (2, 1)), 1)
    rng = np.random.default_rng(0)
    for case in range(50):
        noisy = view.forecast.bandwidth_bps * np.exp(rng.standard_normal(view.forecast.bandwidth_bps.shape))
        forecast = Forecast(view.forecast.horizons_s, noisy, view.forecast.sd_log, view.forecast.latency_s)
        made = replace(view, forecast=forecast, plan=plan if case % 2 else None, now_ns=case, tokens=case / 3)
        text = json.dumps(view_to_json(made), allow_nan=False)
        back = view_from_json(json.loads(text))
        assert digest(view_to_json(back)) == digest(view_to_json(made))
        assert np.array_equal(back.forecast.bandwidth_bps, noisy)
        assert (back.plan, back.free_gpus, back.now_ns) == (made.plan, made.free_gpus, made.now_ns)
    assert plan_from_json(plan_to_json(plan)) == plan and plan_to_json(None) is None
    assert math.isinf(view_from_json(view_to_json(view)).forecast.bandwidth_bps[0, 0, 0])


def coordinator(
    decision: Decision, *, took_s: float = 0.0, **options: object
) -> tuple[DecisionGuard, View, Estimator]:
    estimator, view = first_view()
    setup = toy_setup()
    made = run_header.Header(setup.header(), "static", "kernel", None, False)
    context = runner.context_of(made, setup)
    ticks = iter([0.0, took_s, took_s])

    class Fixed:
        name = "fixed"

        def reset(self, context: object) -> None: ...

        def decide(self, view: View) -> Decision:
            return decision

    asked = DecisionGuard(Fixed(), context, deadline_s=1.0, clock=lambda: next(ticks), **options)  # type: ignore[arg-type]
    return asked, view, estimator


def test_a_late_answer_is_replaced_only_where_the_deadline_is_enforced() -> None:
    plan = first_view()[0].make((0, 1), (17, 17), 2, ((2, 1), (2, 1)), 1)
    asked, view, _ = coordinator(Decision(plan, "mine"), took_s=1.5)
    decision, wall = asked.decide(0, view)
    assert decision.plan == plan and decision.fallback is None
    assert wall == {"latency_s": 1.5, "late": True, "coordination_s": 1.5}

    asked, view, _ = coordinator(Decision(plan, "mine"), took_s=1.5, enforce=True)
    decision, _ = asked.decide(0, view)
    assert decision.plan is not None and decision.fallback == "deadline of 1 s missed"

    running = replace(view, plan=plan)
    asked, _, _ = coordinator(Decision(plan, "mine"), took_s=1.5, enforce=True)
    assert asked.decide(0, running)[0].plan is None  # hold what runs


def test_a_recorded_miss_replaces_the_clock() -> None:
    plan = first_view()[0].make((0, 1), (17, 17), 2, ((2, 1), (2, 1)), 1)
    asked, view, _ = coordinator(Decision(plan, "mine"), took_s=9.0, enforce=True, missed={})
    assert asked.decide(0, replace(view, plan=plan))[0].fallback is None
    asked, view, _ = coordinator(Decision(plan, "mine"), enforce=True, missed={0: "deadline of 1 s missed"})
    assert asked.decide(0, replace(view, plan=plan))[0].fallback == "deadline of 1 s missed"


def test_an_illegal_answer_is_replaced_and_named() -> None:
    estimator, view = first_view()
    plan = estimator.make((0, 1), (17, 17), 2, ((2, 1), (2, 1)), 1)
    asked, _, _ = coordinator(Decision(plan, "mine"))
    decision, _ = asked.decide(0, replace(view, free_gpus=(0, 4, 4)))
    assert decision.fallback is not None and decision.fallback.startswith("illegal plan: d0")
    assert decision.plan is not None and 0 not in decision.plan.order
    asked, _, _ = coordinator(Decision(None, "hold"))
    decision, _ = asked.decide(0, view)
    assert decision.plan is not None and decision.fallback == "illegal plan: nothing to hold"


def test_every_registered_baseline_runs(store: Path) -> None:
    for name, entry in registry.POLICIES.items():
        if not entry.learned:
            assert toy_run(store, name).kpis.fallbacks == 0, name


def test_headers_survive_json() -> None:
    setup = toy_setup()
    made = run_header.Header(setup.header(), "mpc", "kernel", None, False)
    back = run_header.from_payload(json.loads(json.dumps(made.payload())))
    assert back.payload() == made.payload() and back.config_digest == made.config_digest
    assert back.scenario() == toy_scenario()
    assert run_header.Header(setup.header(), "mpc", "des", None, False).config_digest != made.config_digest


def test_a_world_that_just_stops_is_our_mistake(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "__iter__", lambda world: iter(()))
    with pytest.raises(AssertionError, match="a world ends with run_finished"):
        toy_run(store, "static")


def test_an_empty_directory_stands_for_no_run(store: Path) -> None:
    first = toy_run(store, "static")
    run_index.folder(store, f"{first.run_id}-2").mkdir()
    assert toy_run(store, "static", reuse=True).run_id == first.run_id


def test_where_no_plan_fits_at_all_a_run_cannot_start() -> None:
    _, view = first_view()
    asked, _, _ = coordinator(Decision(None, "hold"))
    with pytest.raises(InfeasibleError, match="no plan fits the model"):
        asked.decide(0, replace(view, free_gpus=(0, 0, 0)))
    asked, _, _ = coordinator(Decision(None, "hold"), may_wait=True)
    decision, _ = asked.decide(0, replace(view, free_gpus=(0, 0, 0)))
    assert decision.plan is None  # a job of several waits for room


def test_a_policy_that_finds_nothing_falls_back_unless_it_cannot_even_start() -> None:
    class Helpless(Static):
        def decide(self, view: View) -> Decision:
            raise InfeasibleError("no plan of mine fits")

    estimator, view = first_view()
    setup = toy_setup()
    context = runner.context_of(run_header.Header(setup.header(), "static", "kernel", None, False), setup)
    asked = DecisionGuard(Helpless(), context, deadline_s=1.0)
    with pytest.raises(InfeasibleError, match="of mine"):
        asked.decide(0, view)
    plan = estimator.make((0, 1), (17, 17), 2, ((2, 1), (2, 1)), 1)
    decision, _ = asked.decide(1, replace(view, plan=plan))
    assert decision.plan is None and decision.fallback == "nothing fits: no plan of mine fits"
