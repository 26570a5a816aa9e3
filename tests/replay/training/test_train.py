"""`twin train` on a toy world: a curve in the log, a checkpoint in use, and a resume that is no different."""

import os
import signal
from pathlib import Path
from threading import Thread
from typing import NoReturn

import pytest
import torch

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT
from ingest.core.units import NS_PER_S
from policy.hippo.networks import checkpoint, hippo_config
from policy.hippo.training.rollout import EVALUATION_PERIODS
from replay.log.run_log import RunReader
from replay.run import runner
from replay.store import checkpoint_lineage, checkpoint_registry, run_index
from replay.training import retrain
from replay.training import train as training_run
from replay.training.train import TrainingResult
from tests.support import toys
from tests.support.worlds import toy_scenario
from twin.scenario.prepare import PreparedScenario, Scenario


class Interrupting:
    """Progress that presses Ctrl-C once, after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Nothing is drawn."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        before, self.left = self.left, self.left - steps
        if before > 0 >= self.left:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_finished_training_is_in_use_and_its_curve_in_the_log(trained: tuple[Path, TrainingResult]) -> None:
    store, done = trained
    assert done.finished and done.active and done.run_id is not None
    assert checkpoint_registry.active(store) == done.checkpoint
    assert done.replaced is not None and done.replaced == checkpoint_registry.previous(store)  # what ships
    reader = RunReader(run_index.folder(store, done.run_id))
    points = [event.payload for event in reader.events() if event.type == "policy_updated"]
    assert len(points) == done.updates >= 3
    assert [p["stage"] for p in points].count("ppo") == 2
    assert all(p["stage"] in ("imitation", "ppo") and p["metrics"] for p in points)
    assert reader.verify() == []


def test_an_interrupted_training_resumes_to_the_same_weights(
    trained: tuple[Path, TrainingResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.without_lake(monkeypatch)
    first = training_run.train(tmp_path, toy_scenario(), algorithm="toy", progress=Interrupting(40))
    assert not first.finished and first.run_id is None and not first.active
    assert checkpoint_registry.active(tmp_path) is None
    with pytest.raises(UsageError, match="another configuration"):
        training_run.train(tmp_path, toy_scenario(), algorithm="design", resume=True)
    second = training_run.train(tmp_path, toy_scenario(), algorithm="toy", resume=True)
    assert second.finished and second.checkpoint == trained[1].checkpoint


def test_training_selects_on_the_validation_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from policy.hippo.training import train

    toys.without_lake(monkeypatch)
    asked: list[PreparedScenario | None] = []

    def watched(setup: PreparedScenario, *, validation: PreparedScenario | None, **_: object) -> NoReturn:
        assert setup.window == "train"
        asked.append(validation)
        raise UsageError("enough")

    monkeypatch.setattr(train, "train", watched)
    walk_s = toys.prepare(toy_scenario(), tmp_path).wan.end_ns / NS_PER_S / EVALUATION_PERIODS
    for period_s in (walk_s, walk_s + 1):  # a walk fits into the window; or does not
        scenario = toy_scenario(control={"period_s": period_s, "horizons_s": [0, period_s]})
        with pytest.raises(UsageError, match="enough"):
            training_run.train(tmp_path, scenario, algorithm="toy")
    whole, none = asked
    assert whole is not None and whole.window == "validate" and none is None


def test_a_retraining_starts_from_the_champion_and_keeps_out_of_the_way_of_training(
    trained: tuple[Path, TrainingResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another architecture than the champion's, as that of `tuned` is for the shipped checkpoint.
    other = hippo_config.shipped("toy").model_copy(update={"gnn": hippo_config.GnnConfig(type="GATv2")})
    monkeypatch.setattr(hippo_config, "shipped", lambda name: other)
    start = checkpoint_registry.path_of(trained[0], trained[1].checkpoint)
    made = retrain.hippo_trainer(
        toys.prepare(toy_scenario(), tmp_path), None, start, tmp_path / "checkpoints", SILENT
    )
    assert (
        checkpoint_registry.verified(checkpoint_registry.path_of(tmp_path, made.digest))
        == made.digest
        != trained[1].checkpoint
    )
    assert made.updates and all(update.metrics for update in made.updates)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", retrain.WORK}


def test_a_training_is_in_the_lineage(trained: tuple[Path, TrainingResult]) -> None:
    store, done = trained
    (record,) = checkpoint_lineage.records(store)
    assert (record.run_id, record.checkpoint, record.parent) == (done.run_id, done.checkpoint, None)


def test_a_training_begins_with_a_checkpoint_and_names_it(
    trained: tuple[Path, TrainingResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.without_lake(monkeypatch)
    first = checkpoint_registry.path_of(trained[0], trained[1].checkpoint)
    mother = checkpoint.install(first, tmp_path / run_index.CHECKPOINTS)
    still = tmp_path / "still.yaml"  # neither imitation nor PPO changes the weights
    still.write_text("{imitation: {lessons: 0, searched: 0, steps: 0}, iterations: 0}")
    made = training_run.train(tmp_path, toy_scenario(), algorithm="toy", settings=still, start=mother)
    child = checkpoint.load(made.path)
    assert child.provenance["parent"] == mother and child.provenance["parent"] != made.checkpoint
    before = checkpoint.load(first)
    assert all(torch.equal(child.upper[name], value) for name, value in before.upper.items())
    assert checkpoint_lineage.records(tmp_path)[0].parent == mother
    with pytest.raises(UsageError, match="architecture"):
        training_run.train(tmp_path, toy_scenario(), algorithm="tuned", start=mother)


def test_what_ships_is_where_training_begins_by_default(tmp_path: Path) -> None:
    ships = checkpoint_registry.that_ships(tmp_path)
    assert ships is not None and training_run.begins_with(tmp_path, "own", None) == ships
    assert training_run.begins_with(tmp_path, "own", "scratch") is None
    assert training_run.begins_with(tmp_path, "tuned", None) is None
    assert hippo_config.shipped("own").gnn == checkpoint.load(ships).config.gnn


def test_a_run_says_that_its_weights_have_not_practised_on_its_links(
    trained: tuple[Path, TrainingResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = trained
    toys.without_lake(monkeypatch)

    def notes(scenario: Scenario, checkpoint: str | None = None) -> str:
        done = runner.run(store, policy="hippo", scenario=scenario, checkpoint=checkpoint)
        return " ".join(done.notes)

    assert "practised" not in notes(toy_scenario())
    ships = checkpoint_registry.that_ships(store)
    assert "`twin train --scenario toy-3 --dataset toy` does that" in notes(toy_scenario(), str(ships))


def test_a_second_ctrl_c_ends_at_once_and_a_thread_is_not_asked() -> None:
    with training_run.interruption() as received:
        os.kill(os.getpid(), signal.SIGINT)
        assert received == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    found: list[list[int]] = []

    def elsewhere() -> None:
        with training_run.interruption() as received:
            found.append(received)

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [[]]
