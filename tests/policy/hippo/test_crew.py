"""Who trains changes nothing: one process, several, Ray, or a lone learner among none."""

from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from socket import socket
from time import sleep
from typing import Any

import pytest
import torch

from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.networks.hippo_config import (
    DistributedConfig,
    GnnConfig,
    HiPpoConfig,
    ImitationConfig,
    LowerConfig,
    PpoConfig,
    RolloutConfig,
)
from policy.hippo.env.training_task import Course, prepared
from policy.hippo.training.rollout_workers import Crew, Here, Processes, mean_weights
from policy.hippo.training.gradient_sharing import Learners
from policy.hippo.training.ppo_loss import normalise
from policy.hippo.training.learner import Practice
from policy.hippo.training.rollout import Task
from policy.hippo.training.train import Company, TrainResult, train
from tests.worlds import toy_setup
from twin.scenario.prepare import Setup

CONFIG = HiPpoConfig(
    gnn=GnnConfig(hidden_dim=16),
    ppo=PpoConfig(num_steps=48, update_epochs=2, minibatch_size=16),
    lower=LowerConfig(lr=0.05),
    rollout=RolloutConfig(environments=4, episode_steps=6),
    imitation=ImitationConfig(lessons=0, searched=3, steps=2, batch=4),
    iterations=2,
    evaluate_every=2,
)


def toy() -> Setup:
    return toy_setup(2, seconds=1800.0, steps={(0, 1): [(600.0, 4e8)]})


def trained(out: Path, config: HiPpoConfig = CONFIG, **company: Any) -> TrainResult:
    return train(toy(), config=config, out=out, company=Company(**company))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    return trained(tmp_path_factory.mktemp("plain"))


def crew_of(kind: Callable[..., Crew], workers: int) -> Callable[[HiPpoConfig, Sequence[Course]], Crew]:
    return lambda config, courses: kind(workers, config, courses)


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_collect_what_one_would(workers: int, plain: TrainResult, tmp_path: Path) -> None:
    assert trained(tmp_path, crew=crew_of(Processes, workers)).digest == plain.digest


@pytest.mark.filterwarnings("ignore")
def test_ray_collects_what_one_would(plain: TrainResult, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from policy.hippo.training.ray_workers import RayCrew

    assert trained(tmp_path, crew=crew_of(RayCrew, 2)).digest == plain.digest


def test_lower_agents_learn_in_every_task_and_are_averaged() -> None:
    courses = [prepared(toy(), CONFIG)]
    practice = Practice(*checkpoints.build(CONFIG), CONFIG)
    before = practice.lower_weights()
    tasks = [Task(0, 3, (0, name)) for name in ("a", "b")]
    Here(CONFIG, courses).collect(practice, tasks)
    apart = []
    for task in tasks:
        practice_of_one = Practice(*checkpoints.build(CONFIG), CONFIG)
        Here(CONFIG, courses).collect(practice_of_one, [task])
        apart.append(practice_of_one.lower_weights())
    weight = practice.lower.state_dict()["out.weight"]
    assert not torch.equal(weight, before["out.weight"])
    assert not torch.equal(apart[0]["out.weight"], apart[1]["out.weight"])
    torch.testing.assert_close(weight, (apart[0]["out.weight"] + apart[1]["out.weight"]) / 2)
    assert torch.equal(weight, mean_weights(apart)["out.weight"])


# -- learners that share gradients


def learner(rank: int, size: int, port: int, out: str, config: HiPpoConfig, slow: float, box: Any) -> None:
    """One process; puts (rank, digest of its weights, decisions of its rollouts) into the box."""
    peers = Learners(rank, size, "127.0.0.1", port, config)
    taken: list[int] = []

    class Watched(Here):
        def collect(self, practice: Practice, tasks: Any, enough: Any = None) -> Any:
            def waiting(steps: int) -> bool:
                if rank == 1:
                    sleep(slow)
                return bool(enough(steps))

            found = super().collect(practice, tasks, waiting)
            taken.append(sum(len(rollout.value) for rollout in found))
            finals.append(practice)
            return found

    finals: list[Practice] = []
    train(toy(), config=config, out=Path(out), company=Company(crew=Watched, peers=peers))
    upper = finals[0].upper.state_dict()
    total = {name: tensor.double().sum().item() for name, tensor in upper.items()}
    box.put((rank, total, taken))
    peers.close()


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def together(
    folder: Path, size: int = 2, config: HiPpoConfig = CONFIG, slow: float = 0.0
) -> list[tuple[int, dict[str, float], list[int]]]:
    context, port = get_context("spawn"), free_port()
    box = context.Queue()
    processes = [
        context.Process(target=learner, args=(rank, size, port, str(folder / str(rank)), config, slow, box))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    found = sorted(box.get(timeout=240) for _ in processes)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return found


def test_a_lone_learner_learns_what_plain_training_learns(plain: TrainResult, tmp_path: Path) -> None:
    peers = Learners(0, 1, "127.0.0.1", free_port(), CONFIG)
    try:
        assert trained(tmp_path, peers=peers).digest == plain.digest
    finally:
        peers.close()


def normalising(rank: int, port: int, advantages: list[list[float]], box: Any) -> None:
    """One process of two; puts (rank, its minibatches normalised) into the box."""
    peers = Learners(rank, 2, "127.0.0.1", port, CONFIG)
    box.put((rank, [one.tolist() for one in peers.normalise([torch.tensor(one) for one in advantages])]))
    peers.close()


def test_advantages_are_normalised_over_all_learners() -> None:
    context, port = get_context("spawn"), free_port()
    box = context.Queue()
    given = [[[1.0, 2.0], [4.0]], [[3.0, 6.0, 8.0], [8.0]]]
    processes = [context.Process(target=normalising, args=(n, port, given[n], box)) for n in range(2)]
    for process in processes:
        process.start()
    (_, first), (_, second) = sorted(box.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    for n in range(2):
        whole = normalise(torch.tensor(given[0][n] + given[1][n]))
        torch.testing.assert_close(torch.tensor(first[n] + second[n]), whole)


def test_two_learners_stay_equal_and_repeat_themselves(plain: TrainResult, tmp_path: Path) -> None:
    (_, first, _), (_, second, _) = together(tmp_path / "once")
    assert first == second
    (_, again, _), _ = together(tmp_path / "twice")
    assert again == first
    alone = checkpoints.load(plain.checkpoint_path).upper
    assert first != {name: tensor.double().sum().item() for name, tensor in alone.items()}


def test_stragglers_are_cut_short_and_still_agree(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"distributed": DistributedConfig(preempt=0.5, least=0.5)})
    (_, first, whole), (_, second, cut) = together(tmp_path, config=config, slow=0.4)
    assert first == second
    assert whole == [48, 48]
    assert all(24 <= taken < 48 for taken in cut)
