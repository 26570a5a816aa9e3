"""Nodes of several GPU models: how fast each job runs on each of them, as measured."""

from dataclasses import dataclass

import numpy as np

from twin.queue.jobs import Int
from twin.sharing.changes import PPM


@dataclass(frozen=True, eq=False)
class NodeKinds:
    """GPU models by name, the model of each node (nodes,), and the speed of each job on each (n, models).

    Speeds are millionths of that on the GPUs of the job's run time, 1 or more.
    """

    names: tuple[str, ...]
    of_node: Int
    speed: Int

    @classmethod
    def alike(cls, jobs: int, nodes: int) -> "NodeKinds":
        """Returns one model for all nodes, on which run times were measured."""
        return cls(("GPU",), np.zeros(nodes, np.int64), np.full((jobs, 1), PPM, np.int64))

    def adjusted(self, rate: Int, job: Int, node: Int, leader: Int, whole: Int) -> Int:
        """Returns the speed of each of these jobs (rows,), millionths, on the nodes that they hold.

        `node`: the node of each, none where it holds whole nodes, whose holder is in `whole` (nodes,); those
        who share hold the nodes of their leader. A job on nodes of several models runs as on the slowest, and
        so does one whose GPUs are counted alone.
        """
        found = rate.copy()
        holder = np.where(leader < 0, job, leader)
        for row in np.flatnonzero(rate > 0).tolist():
            own = self.of_node[[node[row]]] if node[row] >= 0 else self.of_node[whole == holder[row]]
            speed = self.speed[job[row], own] if len(own) else self.speed[job[row]]
            found[row] = max(1, int(rate[row]) * int(speed.min()) // PPM)
        return found
