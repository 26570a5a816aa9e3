"""Estimates from logs against the truth: by hand, in expectation, and against real runs."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import InputError
from replay.log.run_log import RunReader, RunWriter
from replay.offpolicy import estimators, evaluation
from replay.offpolicy.estimators import Trajectory
from replay.offpolicy.trajectories import distribution, key, read
from replay.run import runner
from replay.store import run_index
from tests.support.toys import register, toy_run, without_lake
from tests.support.worlds import toy_scenario

SEEDS = range(14)
RARE = {"control": {"period_s": 200, "horizons_s": [0, 60, 300]}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a policy that draws, in worlds that differ in their telemetry noise."""
    with pytest.MonkeyPatch.context() as patch:
        without_lake(patch)
        register(patch, "coin", "Coin")
        folder = tmp_path_factory.mktemp("store")
        for seed in SEEDS:
            runner.run(folder, policy="coin", scenario=toy_scenario(**RARE), seed=seed)
        return folder


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    register(monkeypatch, "coin", "Coin")


def trajectory(ratio: list[float], reward: list[float], **arrays: list[float]) -> Trajectory:
    nothing, yes = np.zeros(len(ratio)), np.ones(len(ratio), dtype=bool)
    given = {name: np.array(values) for name, values in arrays.items()}
    base = {"model": nothing, "target": nothing, "same": ~yes, "open": yes} | given
    return Trajectory(reward=np.array(reward), ratio=np.array(ratio), **base)


def test_importance_sampling_by_hand() -> None:
    paths = [trajectory([2.0, 0.5], [10.0, 20.0]), trajectory([0.0, 2.0], [30.0, 40.0])]
    assert estimators.importance(paths) == (2 * 10 + 1 * 20 + 0) / 2
    assert estimators.weighted(paths) == 10 + 20
    exact = [replace(path, model=path.reward, target=np.array([10.0, 20.0])) for path in paths]
    assert estimators.doubly_robust(exact) == estimators.direct(exact) == 30


def test_what_the_logged_policy_never_does_is_not_estimated() -> None:
    never = trajectory(
        [1.0, 0.0, 0.0], [10.0, 20.0, 30.0], open=np.array([True, False, True]), target=[9.0] * 3
    )  # type: ignore[arg-type]
    assert estimators.importance([never]) is None and estimators.weighted([never]) is None
    assert estimators.doubly_robust([never]) == 27 + 10  # the model alone after the first step
    assert estimators.matched([replace(never, same=np.array([True, False, True]))]) == 27 + 10 + 30


def test_importance_sampling_and_dr_are_unbiased_over_every_path() -> None:
    """Two decisions, two actions each, all paths weighed by their probability under the logged policy."""
    b, p = np.array([0.7, 0.3]), np.array([0.2, 0.8])
    reward = lambda first, second: (3.0 + first, 5.0 * second - first)  # noqa: E731
    truth = sum(
        p[x] * p[y] * sum(reward(x, y)) for x, y in itertools.product((0, 1), repeat=2)
    )  # a model that is wrong by 2 at the second step
    wrong = {"is": 0.0, "dr": 0.0}
    expected_model = sum(
        p[x] * p[y] * (sum(reward(x, y)) + 2) for x, y in itertools.product((0, 1), repeat=2)
    )
    for x, y in itertools.product((0, 1), repeat=2):
        one = trajectory(
            [p[x] / b[x], p[y] / b[y]],
            list(reward(x, y)),
            model=[reward(x, y)[0], reward(x, y)[1] + 2],
            target=[expected_model / 2] * 2,
        )
        wrong["is"] += b[x] * b[y] * (estimators.importance([one]) or 0.0)
        wrong["dr"] += b[x] * b[y] * (estimators.doubly_robust([one]) or 0.0)
    assert wrong["is"] == pytest.approx(truth) and wrong["dr"] == pytest.approx(truth)


def test_logs_of_a_drawing_policy_tell_what_another_one_earns(store: Path) -> None:
    found = evaluation.estimate(store, run_index.all_ids(store), "static")
    truth = runner.run(store, policy="static", scenario=toy_scenario(**RARE)).kpis.tokens
    assert not found.deterministic and found.matched == 1.0 and found.effective_runs > 2
    assert abs(found.logged / truth - 1) > 0.1  # the logged policy earns another amount
    for method, within in (("wis", 0.03), ("dr", 0.15), ("matched", 0.03), ("model", 0.10)):
        tokens = found.of(method).tokens
        assert tokens == pytest.approx(truth, rel=within), (method, tokens, truth)
    plain = found.of("is")
    assert plain.low is not None and plain.high is not None and plain.low <= truth <= plain.high
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert shown["schema"] == "twin.offpolicy/1" and len(shown["estimates"]) == 5


def test_a_policy_is_estimated_from_its_own_log_exactly(store: Path) -> None:
    own = toy_run(store, "greedy")
    found = evaluation.estimate(store, [own.run_id], "greedy")
    assert found.deterministic and found.reaches == found.matched == 1.0
    for method in ("is", "wis"):
        assert found.of(method).tokens == own.kpis.tokens
    assert found.of("matched").tokens == pytest.approx(own.kpis.tokens)
    # Six moves in ten minutes: the model does not know how far the iteration was that each of them cut.
    assert found.of("model").tokens == pytest.approx(own.kpis.tokens, rel=0.15)


def test_a_deterministic_log_says_how_far_it_reaches(store: Path) -> None:
    logged = toy_run(store, "mpc")
    truth = toy_run(store, "static").kpis.tokens
    found = evaluation.estimate(store, [logged.run_id], "static")
    assert found.of("is").tokens is None and found.reaches == 0
    assert any("no logged decision was random" in note for note in found.notes)
    assert found.of("dr").tokens == pytest.approx(truth, rel=0.1)


def test_a_distribution_is_that_of_the_plan_in_force(store: Path) -> None:
    run_id = run_index.all_ids(store)[0]
    steps = read(run_id, RunReader(run_index.folder(store, run_id)).events())
    for step in steps:
        chances = distribution(step.decision, step.view)
        assert sum(chances.values()) == pytest.approx(1.0)
        assert chances[key(step.after)] == pytest.approx(np.exp(step.decision.log_probability or 0.0))
    assert sum(step.tokens for step in steps) == runner.result(store, run_id).kpis.tokens


def test_several_jobs_are_refused(store: Path, tmp_path: Path) -> None:
    source = RunReader(run_index.folder(store, run_index.all_ids(store)[0]))
    submitted = {"reason": "arrived", "gpus": [0, 0, 0], "spec": {}}
    with RunWriter.create(run_index.folder(tmp_path, "many")) as writer:
        writer.append(0, "run_started", source.header())
        writer.append(0, "job_submitted", submitted, job="a")
        writer.finish({})
    with pytest.raises(InputError, match="several jobs"):
        evaluation.estimate(tmp_path, ["many"], "static")


def test_logs_that_cannot_speak_are_refused_and_other_code_is_said(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = RunReader(run_index.folder(store, run_index.all_ids(store)[0]))
    with RunWriter.create(run_index.folder(tmp_path, "open")) as writer:
        for event in list(source.events())[:-1]:
            writer.append(event.sim_ns, event.type, event.payload)
    with pytest.raises(InputError, match="needs a finished run with decisions"):
        evaluation.estimate(tmp_path, ["open"], "static")
    monkeypatch.setattr(evaluation, "code_version", lambda: {"version": "9", "sources": "f" * 64})
    run_id = source.run_dir.name
    found = evaluation.estimate(store, [run_id], "greedy")
    assert f"{run_id} was made by other code" in found.notes
    assert any("importance sampling does not apply" in note for note in found.notes)
    assert found.of("is").tokens is None


def test_tokens_of_the_decisions_are_those_of_the_run_though_a_failure_took_some_back(tmp_path: Path) -> None:
    faults = [{"domain": "d1", "gpus": 4, "at_s": 305, "for_s": 100}]
    done = runner.run(tmp_path, policy="greedy", scenario=toy_scenario(gpu_faults=faults))
    events = list(RunReader(run_index.folder(tmp_path, done.run_id)).events())
    assert any(event.payload.get("lost_tokens") for event in events)
    steps = read(done.run_id, events)
    assert sum(step.tokens for step in steps) == done.kpis.tokens
