"""How fast jobs run on what they hold, in millionths of their speed alone on the GPUs that they asked for."""

from typing import Protocol

import numpy as np

from twin.queue.jobs import Int
from twin.sharing.changes import PPM


class Speeds(Protocol):
    """Speeds that sizes and sharing give to jobs, as measured."""

    def rates(self, job: Int, gpus: Int, leader: Int) -> Int:
        """Returns the speed of each of these jobs (rows,), millionths; 0 where it has no GPUs.

        `leader`: the job that leads those who share the same GPUs, NOWHERE for who shares with nobody.
        """
        ...


class Rigid:
    """Jobs that run on what they asked for, alone."""

    def rates(self, job: Int, gpus: Int, leader: Int) -> Int:
        """Returns full speed for all that have GPUs."""
        return np.where(gpus > 0, np.int64(PPM), np.int64(0))
