"""Training gives equal weights in one process, in several, over Ray, and as the only learner of a group."""

from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from socket import socket
from time import sleep
from typing import Any

import pytest
import torch

from policy.hippo.env.training_task import TrainingTask, prepare_task
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import (
    DistributedConfig,
    GnnConfig,
    HiPpoConfig,
    ImitationConfig,
    LowerConfig,
    PpoConfig,
    RolloutConfig,
)
from policy.hippo.training.gradient_sharing import GlooLearnerGroup
from policy.hippo.training.learner import PpoLearner
from policy.hippo.training.ppo_loss import normalise
from policy.hippo.training.rollout import RolloutRequest
from policy.hippo.training.rollout_workers import (
    InProcessWorkers,
    ProcessWorkers,
    RolloutWorkers,
    mean_weights,
)
from policy.hippo.training.train import TrainingBackend, TrainResult, train
from tests.support.worlds import toy_setup
from twin.scenario.prepare import PreparedScenario

CONFIG = HiPpoConfig(
    gnn=GnnConfig(hidden_dim=16),
    ppo=PpoConfig(num_steps=48, update_epochs=2, minibatch_size=16),
    lower=LowerConfig(lr=0.05),
    rollout=RolloutConfig(environments=4, episode_steps=6),
    imitation=ImitationConfig(lessons=0, searched=3, steps=2, batch=4),
    iterations=2,
    evaluate_every=2,
)


def toy() -> PreparedScenario:
    return toy_setup(2, seconds=1800.0, steps={(0, 1): [(600.0, 4e8)]})


def trained(out: Path, config: HiPpoConfig = CONFIG, **backend: Any) -> TrainResult:
    return train(toy(), config=config, out=out, backend=TrainingBackend(**backend))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    return trained(tmp_path_factory.mktemp("plain"))


def workers_of(
    kind: Callable[..., RolloutWorkers], workers: int
) -> Callable[[HiPpoConfig, Sequence[TrainingTask]], RolloutWorkers]:
    return lambda config, tasks: kind(workers, config, tasks)


def test_worker_processes_collect_what_one_would(plain: TrainResult, tmp_path: Path) -> None:
    assert trained(tmp_path, make_workers=workers_of(ProcessWorkers, 2)).digest == plain.digest


@pytest.mark.filterwarnings("ignore")
def test_ray_collects_what_one_would(plain: TrainResult, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from policy.hippo.training.ray_workers import RayWorkers

    assert trained(tmp_path, make_workers=workers_of(RayWorkers, 2)).digest == plain.digest


def test_lower_agents_learn_in_every_task_and_are_averaged() -> None:
    tasks = [prepare_task(toy(), CONFIG)]
    learner = PpoLearner(*checkpoint.build(CONFIG), CONFIG)
    before = learner.lower_weights()
    requests = [RolloutRequest(0, 3, (0, name)) for name in ("a", "b")]
    InProcessWorkers(CONFIG, tasks).collect(learner, requests)
    apart = []
    for request in requests:
        lone_learner = PpoLearner(*checkpoint.build(CONFIG), CONFIG)
        InProcessWorkers(CONFIG, tasks).collect(lone_learner, [request])
        apart.append(lone_learner.lower_weights())
    weight = learner.lower.state_dict()["out.weight"]
    assert not torch.equal(weight, before["out.weight"])
    assert not torch.equal(apart[0]["out.weight"], apart[1]["out.weight"])
    torch.testing.assert_close(weight, (apart[0]["out.weight"] + apart[1]["out.weight"]) / 2)
    assert torch.equal(weight, mean_weights(apart)["out.weight"])


# -- learners that share gradients


Learned = tuple[dict[str, float], list[int]]
"""Sums of the weights of a learner, and the decisions of its rollouts."""
ADVANTAGES = ([[1.0, 2.0], [4.0]], [[3.0, 6.0, 8.0], [8.0]])
"""Two minibatches of each of two learners."""
PREEMPTING = CONFIG.model_copy(update={"distributed": DistributedConfig(preempt=0.5, least=0.5)})


def learned(rank: int, port: int, out: Path, config: HiPpoConfig = CONFIG, slow: float = 0.0) -> Learned:
    """One learner of two trains; learner 1 waits `slow` seconds at every step."""
    taken: list[int] = []
    finals: list[PpoLearner] = []

    class Watched(InProcessWorkers):
        def collect(self, learner: PpoLearner, requests: Any, early_stop: Any = None) -> Any:
            def waiting(steps: int) -> bool:
                if rank == 1:
                    sleep(slow)
                return bool(early_stop(steps))

            found = super().collect(learner, requests, waiting)
            taken.append(sum(len(rollout.value) for rollout in found))
            finals.append(learner)
            return found

    group = GlooLearnerGroup(rank, 2, "127.0.0.1", port, config)
    train(toy(), config=config, out=out, backend=TrainingBackend(make_workers=Watched, group=group))
    group.close()
    upper = finals[0].upper.state_dict()
    return {name: tensor.double().sum().item() for name, tensor in upper.items()}, taken


def normalised(rank: int, port: int, out: Path) -> list[list[float]]:
    """The minibatches of one learner of two, normalised with those of the other."""
    group = GlooLearnerGroup(rank, 2, "127.0.0.1", port, CONFIG)
    found = [one.tolist() for one in group.normalise([torch.tensor(one) for one in ADVANTAGES[rank]])]
    group.close()
    return found


JOBS: dict[str, Callable[..., Any]] = {
    "once": learned,
    "twice": learned,
    "one is slow": partial(learned, config=PREEMPTING, slow=0.4),
    "normalised": normalised,
}


def learner_process(rank: int, folder: Path, other: Any, box: Any) -> None:
    """One process of two: puts (rank, what each job gave) into the box. Learner 0 tells `other` the ports."""
    given = {}
    for name, job in JOBS.items():
        if rank == 0:
            port = free_port()
            other.send(port)
        else:
            port = other.recv()
        given[name] = job(rank, port, folder / f"{name}-{rank}")
    box.put((rank, given))


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """What each job gave to learners 0 and 1; two processes for all, since a new one imports for seconds."""
    context, folder = get_context("spawn"), tmp_path_factory.mktemp("together")
    box = context.Queue()
    processes = [
        context.Process(target=learner_process, args=(rank, folder, other, box), daemon=True)
        for rank, other in enumerate(context.Pipe())
    ]
    for process in processes:
        process.start()
    (_, first), (_, second) = sorted((box.get(timeout=240) for _ in processes), key=lambda given: given[0])
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return {name: (first[name], second[name]) for name in JOBS}


def test_a_lone_learner_learns_what_plain_training_learns(plain: TrainResult, tmp_path: Path) -> None:
    group = GlooLearnerGroup(0, 1, "127.0.0.1", free_port(), CONFIG)
    try:
        assert trained(tmp_path, group=group).digest == plain.digest
    finally:
        group.close()


def test_advantages_are_normalised_over_all_learners(together: dict[str, tuple[Any, Any]]) -> None:
    first, second = together["normalised"]
    for n in range(2):
        whole = normalise(torch.tensor(ADVANTAGES[0][n] + ADVANTAGES[1][n]))
        torch.testing.assert_close(torch.tensor(first[n] + second[n]), whole)


def test_two_learners_stay_equal_and_repeat_themselves(
    plain: TrainResult, together: dict[str, tuple[Any, Any]]
) -> None:
    (first, _), (second, _) = together["once"]
    assert first == second
    (repeated, _), _ = together["twice"]
    assert repeated == first
    alone = checkpoint.load(plain.checkpoint_path).upper
    assert first != {name: tensor.double().sum().item() for name, tensor in alone.items()}


def test_stragglers_are_cut_short_and_still_agree(together: dict[str, tuple[Any, Any]]) -> None:
    (first, whole), (second, cut) = together["one is slow"]
    assert first == second
    assert whole == [48, 48]
    assert all(24 <= taken < 48 for taken in cut)
