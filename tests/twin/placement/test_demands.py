import numpy as np
import pytest

from ingest.core.errors import UsageError
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, mask_of, popular

CLUSTER = NodeCluster.of_nodes([8, 4], ["A100", "V100"], [64_000, 32_000], [1024, 512])


def test_jobs_that_ask_for_the_same_are_one_class() -> None:
    found = Demands.of_jobs(
        CLUSTER,
        [1, 8, 1, 0],
        [500, 1000, 500, 0],
        [2000, 20_001, 2000, 1000],
        [10, 80, 10, 5],
        ["", "A100", "", ""],
    )
    assert found.class_of[0] == found.class_of[2] and len(found.wants.gpus) == 3
    eight = found.class_of[1]
    # 20,001 thousandths of a core over 8 GPUs are 2,501 each, rounded up.
    assert (found.wants.cpu[eight], found.wants.memory[eight]) == (2501, 10)
    assert found.wants.allowed[eight].tolist() == [True, False]
    assert found.wants.milli[found.class_of[3]] == 0


def test_nobody_is_asked_for_what_nodes_do_not_say() -> None:
    found = Demands.of_jobs(NodeCluster.parse("1 x 8 A100"), [1], [1000], [64_000], [9])
    assert (found.wants.cpu.tolist(), found.wants.memory.tolist()) == ([0], [0])


@pytest.mark.parametrize(("gpus", "milli"), [(2, 500), (1, 0), (1, 1001)])
def test_impossible_shares_are_refused(gpus: int, milli: int) -> None:
    with pytest.raises(UsageError, match="a share of several GPUs, or for none"):
        Demands.of_jobs(CLUSTER, [gpus], [milli])


def test_a_job_takes_any_model_that_it_names() -> None:
    assert mask_of(CLUSTER, "") == (True, True)
    assert mask_of(CLUSTER, "V100|H100") == (False, True)
    with pytest.raises(UsageError, match="'H100' is not in the cluster; did you mean"):
        mask_of(CLUSTER, "H100")


def test_a_mix_keeps_the_most_frequent_tasks() -> None:
    tasks = Demands.of_jobs(CLUSTER, [1, 2, 4]).tasks
    # 90 % are not enough, so the second is counted too, and of the two with 5 the later task.
    assert popular(tasks, np.array([90, 5, 5])).weight.tolist() == [90, 0, 5]
    assert popular(tasks, np.array([96, 2, 2])).weight.tolist() == [96, 0, 0]
    assert popular(tasks, np.array([1, 1, 1])).total.tolist() == [3]
