"""`twin train` with company: worker processes, learners that share gradients, lessons from logs; its curve
live and for TensorBoard.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from socket import socket
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import cli
from commands.show.console import Console
from commands.show.live_training import UpdateLines, sparkline
from ingest.core.errors import UsageError
from policy.hippo.env.training_task import prepare_task
from policy.hippo.networks.hippo_config import HiPpoConfig, shipped
from policy.hippo.training import ray_workers, rollout_workers
from policy.hippo.training.imitation import logged_demonstrations
from policy.hippo.training.rollout_workers import InProcessWorkers
from replay.live.training_curves import TrainingCurves
from replay.offpolicy.demonstrations import AHEAD, logged
from replay.run import runner
from replay.store import checkpoint_registry, run_index
from replay.tracking.contract import track
from replay.tracking.tensorboard_events import TensorboardEvents
from replay.tracking.tracked_run import tracked
from replay.training import train as training_run
from replay.training.train import Team, TrainingResult
from tests.support import toys
from tests.support.worlds import toy_scenario, toy_setup


def test_learners_share_what_they_learn_and_one_of_them_writes(
    trained: tuple[Path, TrainingResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.without_lake(monkeypatch)
    shared = training_run.train(tmp_path, toy_scenario(), algorithm="toy", team=Team(distributed=2))
    assert shared.finished and shared.checkpoint != trained[1].checkpoint
    assert len(list((tmp_path / "checkpoints").glob("[0-9a-f]*/hippo-*.pt"))) == 1


LEARNER = """
import json
import sys
from pathlib import Path
from replay.training import train as training_run
from tests.support import toys
from tests.support.worlds import toy_scenario
from twin.scenario import prepare

prepare.prepare = toys.prepare
team = training_run.Team(distributed=2)
done = training_run.train(Path(sys.argv[1]), toy_scenario(), algorithm="toy", team=team)
print(json.dumps(done.to_json()))
"""


def test_of_the_learners_that_a_launcher_started_one_writes(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process is learner 0: a further one imports for seconds."""
    toys.without_lake(monkeypatch)
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    other = Popen(
        [sys.executable, "-c", LEARNER, str(tmp_path)],
        cwd=repository,
        env={**os.environ, **together, "RANK": "1"},
        stdout=PIPE,
        text=True,
    )
    for name, value in {**together, "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    written = training_run.train(tmp_path, toy_scenario(), algorithm="toy", team=Team(distributed=2))
    nothing = json.loads(other.communicate(timeout=60)[0])
    assert run_index.all_ids(tmp_path) == (written.run_id,)
    assert checkpoint_registry.active(tmp_path) == written.checkpoint and written.active
    assert nothing["finished"] and (nothing["run"], nothing["checkpoint"], nothing["active"]) == (
        None,
        "",
        False,
    )


def test_a_launcher_starts_as_many_as_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.without_lake(monkeypatch)
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "here"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="--distributed 2, but 3 processes were started"):
        training_run.train(tmp_path, toy_scenario(), algorithm="toy", team=Team(distributed=2))


@pytest.mark.parametrize(("team", "kind"), [(Team(workers=3), "ProcessWorkers"), (Team(ray=3), "RayWorkers")])
def test_so_many_workers_are_asked_for_and_a_result_may_be_left_unused(
    trained: tuple[Path, TrainingResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    team: Team,
    kind: str,
) -> None:
    """That real ones collect what one process would: tests/policy/hippo/training/test_rollout_workers.py."""
    toys.without_lake(monkeypatch)
    asked = []

    def workers(count: int, *rest: Any) -> InProcessWorkers:
        asked.append(count)
        return InProcessWorkers(*rest)

    monkeypatch.setattr(rollout_workers if kind == "ProcessWorkers" else ray_workers, kind, workers)
    done = training_run.train(tmp_path, toy_scenario(), algorithm="toy", team=team, activate=False)
    assert asked == [3] and done.checkpoint == trained[1].checkpoint
    assert not done.active and checkpoint_registry.active(tmp_path) is None


def test_only_one_training_backend() -> None:
    with pytest.raises(UsageError, match="one of"):
        Team(workers=2, ray=2)
    said = CliRunner().invoke(cli.twin, ["train", "--workers", "2", "--ray", "2"])
    assert said.exit_code != 0
    assert CliRunner().invoke(cli.twin, ["train", "--workers", "-1"]).exit_code == 2


def test_the_curve_is_read_back_from_tensorboard(
    trained: tuple[Path, TrainingResult], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    store, done = trained
    assert done.run_id is not None
    made = track(TensorboardEvents(), tracked(store, done.run_id), tmp_path)
    made.write(force=False)
    (path,) = (tmp_path / name for name in made.files)
    found = EventAccumulator(str(path.parent)).Reload()
    rewards = found.Scalars("ppo/reward")
    assert [point.step for point in rewards] == [128, 256]
    assert np.isfinite([point.value for point in rewards]).all()
    assert {"ppo/validation_score", "imitation/loss"} <= set(found.Tags()["scalars"])


def test_live_prints_every_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toys.without_lake(monkeypatch)
    tell = UpdateLines(Console(), TrainingCurves()).tell
    done = training_run.train(tmp_path, toy_scenario(), algorithm="toy", tell=tell)
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count(" steps ") == done.updates
    assert "ppo 2 256 steps" in shown and "reward" in shown and "validation_score" in shown


def test_sparkline_runs_from_lowest_to_highest() -> None:
    assert sparkline([0.0, 1.0, 0.5]) == "▁█▄" or sparkline([0.0, 1.0, 0.5]) == "▁█▅"
    assert sparkline([]) == "" and sparkline([2.0]) == "▁"
    assert len(sparkline([float(x) for x in range(100)])) == 24


def test_logged_decisions_become_demonstrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.without_lake(monkeypatch)
    played = [
        runner.run(tmp_path, policy=policy, scenario=toy_scenario(), seed=1, window="train").run_id
        for policy in ("static", "mpc")
    ]
    decisions = logged(tmp_path, played, toys.prepare(toy_scenario(), tmp_path, window="train"))
    assert abs(np.mean([one.advantage for one in decisions])) < 1e-9
    assert len(decisions) > AHEAD and decisions[0].plan is not None
    task = prepare_task(toy_setup(3), HiPpoConfig())
    config = shipped("toy").imitation
    alike = logged_demonstrations(task, decisions, config.model_copy(update={"beta": 0.0}))
    weighted = logged_demonstrations(task, decisions, config.model_copy(update={"beta": 0.1}))
    assert alike is not None and weighted is not None and len(alike) == len(weighted) > 0
    assert set(alike.weight.tolist()) == {1.0}
    best = max(decisions, key=lambda one: one.advantage)
    assert weighted.weight.max().item() == pytest.approx(min(np.exp(best.advantage / 0.1), 20.0), rel=1e-5)
    first = training_run.train(tmp_path, toy_scenario(), algorithm="toy", demonstrations=played)
    without = training_run.train(tmp_path / "other", toy_scenario(), algorithm="toy")
    assert first.checkpoint != without.checkpoint
    with pytest.raises(UsageError, match="lessons"):  # it would have gone on without them
        training_run.train(tmp_path, toy_scenario(), algorithm="toy", resume=True)
    resumed = training_run.train(
        tmp_path, toy_scenario(), algorithm="toy", demonstrations=played, resume=True
    )
    assert resumed.checkpoint == first.checkpoint


def test_what_is_graded_on_teaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.without_lake(monkeypatch)
    graded = runner.run(tmp_path, policy="static", scenario=toy_scenario(), window="test").run_id
    with pytest.raises(UsageError, match=r"on the test window .* --window train") as refused:
        training_run.train(tmp_path, toy_scenario(), algorithm="toy", demonstrations=[graded])
    assert refused.value.exit_code == 2
    seen = replace(toys.prepare(toy_scenario(), tmp_path), trace_digest="another")
    with pytest.raises(UsageError, match="another"):
        logged(tmp_path, [graded], seen)


def test_demonstrations_need_finished_runs_with_decisions(trained: tuple[Path, TrainingResult]) -> None:
    store, done = trained
    assert done.run_id is not None
    with pytest.raises(UsageError, match="the record of a training"):
        logged(store, [done.run_id], toy_setup())
