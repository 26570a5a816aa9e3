"""What the compiled event loop knows of a cluster: the nodes, what jobs ask of them, and who lies where."""

from typing import NamedTuple

import numpy as np

from ingest.core.compiled import njit
from twin.nodes.sleeping import Sleepers, sleepers
from twin.placement.bookings import Bookings, cancel, move, none_booked
from twin.placement.choosing import Chooser, chooser
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, Mix, Wants
from twin.placement.nodes import GIVE, Drafts, Nodes, drafts, idle
from twin.placement.recipe import Int, PlacementRecipe

GIVEN, CHANGED, SUBMITTED, RECOUNT, HEAD = range(5)
"""Places of `ClusterState.tally`: how often resources became free, how often nodes changed, jobs submitted,
at how many the mix of tasks is counted anew, and the head that `delaying` is about."""
AFTER_END, AFTER_OUTAGE = np.int64(1), np.int64(2)
"""Values of `Pool.now[ENDED]`: some job has ended since the last pass, some node has changed."""
FUTURE, STATES = np.int64(3), 4
"""The state of the nodes when the head of the queue starts, behind those of bookings; and all of them."""
NOBODY, BEGINNING = np.int64(-1), np.int64(0)
"""No job, and the first. Not plain numbers: numba compiles a function anew for each literal."""


class ClusterState(NamedTuple):
    """The nodes, and states of them to compute with (`TRIED`, `LATER` and `LEAST` of bookings, and `FUTURE`,
    when the head of the queue starts); what jobs ask for, the mix of tasks and the rule of placement; the
    class of each job, its slots from `first` on; the states in which a class did not fit, and would have
    delayed the head; jobs submitted of each task; what is booked for later; sleep."""

    nodes: Nodes
    states: Drafts
    wants: Wants
    mix: Mix
    rule: Chooser
    class_of: Int
    first: Int
    slots: Int
    unfit: Int
    delaying: Int
    counts: Int
    tally: Int
    booked: Bookings
    sleep: Sleepers


def site_of(
    cluster: NodeCluster, demands: Demands, placement: PlacementRecipe, seed: int = 0,
    sleep: Sleepers | None = None,
) -> ClusterState:  # fmt: skip
    """Returns idle nodes, and jobs without places; nodes sleep as `sleep` says."""
    kinds, wants = len(demands.wants.gpus), demands.wants
    sizes = np.maximum(wants.gpus, 1)[demands.class_of]
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    tasks = demands.tasks
    mix, nodes = tasks._replace(weight=tasks.weight.copy(), total=tasks.total.copy()), idle(cluster)
    return ClusterState(
        nodes, drafts(nodes, STATES), wants, mix,
        chooser(placement, demands, cluster, seed), demands.class_of, first,
        np.full(int(first[-1]), -1, np.int64), np.full(kinds, -1, np.int64), np.full(kinds, -1, np.int64),
        np.zeros(len(tasks.gpus), np.int64), np.array([0, 0, 0, 1, -1], np.int64),
        none_booked(len(demands.class_of)),
        sleep or sleepers(None, len(cluster), np.zeros(len(demands.class_of), np.int64)),
    )  # fmt: skip


@njit(inline="always")
def slots_of(site: ClusterState, job: int) -> Int:
    """Returns the slots of a job."""
    return site.slots[site.first[job] : site.first[job + 1]]


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def move_job(nodes: Nodes, site: ClusterState, job: int, sign: int) -> None:
    """Takes the slots of a job on nodes (sign -1), or gives them back (sign 1)."""
    move(nodes, site.wants, site.class_of[job], slots_of(site, job), sign)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def free(site: ClusterState, job: int) -> None:
    """Gives back what a job holds."""
    move_job(site.nodes, site, job, GIVE)
    cancel(site.booked, job, GIVE)
    site.tally[GIVEN] += 1
    site.tally[CHANGED] += 1
