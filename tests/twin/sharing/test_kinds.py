"""Speeds of jobs on nodes of several GPU models."""

import numpy as np

from twin.sharing.kinds import NodeKinds

KINDS = NodeKinds(("a", "b"), np.array([0, 1, 1]), np.array([[1_000_000, 500_000], [1_000_000, 250_000]]))


def test_a_job_runs_at_the_speed_of_its_nodes_the_slowest_if_they_differ() -> None:
    def rate(node: int, whole: list[int], leader: int = -1) -> int:
        job = np.array([1])
        rates = np.array([800_000])
        found = KINDS.adjusted(rates, job, np.array([node]), np.array([leader]), np.array(whole))
        return int(found[0])

    assert rate(0, [-1, -1, -1]) == 800_000
    assert rate(2, [-1, -1, -1]) == 200_000
    assert rate(-1, [1, -1, -1]) == 800_000
    assert rate(-1, [1, 1, -1]) == 200_000
    assert rate(-1, [0, -1, -1], leader=0) == 800_000  # the nodes of its leader
    assert rate(-1, [-1, -1, -1]) == 200_000  # counted, lies nowhere


def test_alike_nodes_change_nothing_and_waiting_jobs_stay_at_none() -> None:
    alike, job = NodeKinds.alike(2, 3), np.array([0, 1])
    rate, nowhere = np.array([700_000, 0]), np.full(3, -1)
    assert alike.adjusted(rate, job, np.array([2, -1]), np.full(2, -1), nowhere).tolist() == [700_000, 0]
