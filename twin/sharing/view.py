"""What a scheduler of changing jobs sees at an event, and what it answers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from twin.queue.jobs import Int
from twin.sharing.changes import ChangeRules
from twin.sharing.kinds import NodeKinds

if TYPE_CHECKING:  # speeds come from measurements, a view only passes them on
    from twin.sharing.job_goodput import JobGoodput
    from twin.sharing.speeds import MeasuredSpeeds
    from twin.sharing.uplinks import LinkOrder

NOWHERE = -1
"""Node of a job that has none, or holds whole nodes; leader of a job that shares with nobody."""


@dataclass(frozen=True, eq=False)
class JobFacts:
    """Facts of all jobs before they run; one element a job in every array.

    `kinds`: GPU models of nodes, None where all are alike. `goodput`: None where speeds do not follow from
    batch and progress.
    """

    asked: Int
    deadline_ns: Int
    pause_ns: Int
    predicted_ns: Int
    submit_ns: Int
    priority: Int
    speeds: "MeasuredSpeeds"
    kinds: NodeKinds | None = None
    goodput: "JobGoodput | None" = None


@dataclass(frozen=True, eq=False)
class SharingView:
    """The jobs that wait or run, a row each, in order of submission, and the nodes.

    `job`: index among all jobs. `gpus` (0: waits), `node`, `leader`: what a job holds now, with the row of
    the first of those that it shares with. `left_ns`: its predicted rest, alone on the GPUs that it asked
    for. `executed_ns`, `served_ns`: how long it has run, and that times GPUs; `changed`: how often it was
    resumed, moved or resized. `whole`: row of the job that lies on several nodes, or holds one alone, for
    each node (nodes,), or NOWHERE; `part`: GPUs of the node that this job holds, all of them but where a
    scheduler gives fewer. `free`: GPUs of each node that the scheduler may give, those of the rows included
    (nodes,); `sizes`: all its GPUs; `spanned`: a job that may not be changed now, and lies on several nodes,
    lies on this one. `node_gpus`: GPUs of the largest node. `ended_served_ns`: GPU time of the jobs that
    ended at this event. Jobs that may not be changed now, and their GPUs, are not in it.
    """

    now_ns: int
    job: Int
    asked: Int
    gpus: Int
    node: Int
    leader: Int
    left_ns: Int
    executed_ns: Int
    served_ns: Int
    first_ns: Int
    mode: Int
    changed: Int
    whole: Int
    part: Int
    free: Int
    sizes: Int
    spanned: NDArray[np.bool_]
    node_gpus: int
    arrived: int
    ended_served_ns: Int
    facts: JobFacts
    rules: ChangeRules

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True, eq=False)
class Allocation:
    """GPUs of each row (0: waits), its node and the leader of those that it shares with, and who lies on a
    node beside others or holds it alone (nodes,), with `part` of its GPUs, all if nothing is said; `mode`
    says how the jobs of a leader share, INTERLEAVED if nothing is said; at `again_ns` the scheduler wants to
    be asked again, whatever happens until then. `refused`: new jobs that are turned away for good. `links`:
    who goes first on links that jobs share; None: all alike.
    """

    gpus: Int
    node: Int
    whole: Int
    leader: Int | None = None
    mode: Int | None = None
    again_ns: int | None = None
    refused: NDArray[np.bool_] | None = None
    part: Int | None = None
    links: "LinkOrder | None" = None


class SharingScheduler(Protocol):
    """One run of a scheduler: it may keep what it needs between events."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns who holds what from now on."""
        ...
