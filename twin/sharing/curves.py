"""Speed of jobs over the number of GPUs, as measured: linear between two sizes, refused outside."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.core.errors import UsageError
from twin.queue.jobs import Float, Int
from twin.sharing.changes import PPM


@dataclass(frozen=True, eq=False)
class SpeedCurve:
    """Iterations a second (k,) of a job on these numbers of GPUs (k,), ascending."""

    name: str
    sizes: Int
    rate: Float

    def at(self, gpus: int) -> float:
        """Returns iterations a second on that many GPUs.

        Raises:
            UsageError: no size was measured on both sides.
        """
        if not self.covers(gpus):
            raise UsageError(
                f"{self.name} was measured on {self.sizes[0]} to {self.sizes[-1]} GPUs, not on {gpus}: "
                "its speed there is not known"
            )
        return float(np.interp(gpus, self.sizes, self.rate))

    def covers(self, gpus: int) -> bool:
        """Returns True if that size lies between two that were measured, or is one of them."""
        return bool(self.sizes[0] <= gpus <= self.sizes[-1])


@dataclass(frozen=True, eq=False)
class SpeedCurves:
    """Speeds over sizes of all jobs, millionths of the speed on the GPUs asked for: `table` (curves, most
    GPUs + 1), 0 where a size was not measured, and the row of each job in it (n,), -1 for a job that runs on
    what it asked for alone."""

    asked: Int
    table: Int
    row: Int

    @classmethod
    def rigid(cls, asked: Int) -> "SpeedCurves":
        """Returns the curves of jobs that have one size."""
        return cls(asked, np.zeros((1, 1), np.int64), np.full(len(asked), -1, np.int64))

    @classmethod
    def of(cls, asked: Int, curves: Sequence[SpeedCurve | None], most: int) -> "SpeedCurves":
        """Returns the speeds of jobs by their curves, up to `most` GPUs; a job whose own size lies outside of
        its curve is rigid."""
        rows, table = [], dict[tuple[int, int], tuple[int, list[int]]]()
        for size, curve in zip(asked.tolist(), curves, strict=True):
            if curve is None or not curve.covers(size):
                rows.append(-1)
                continue
            key = (id(curve), size)
            if key not in table:
                own = curve.at(size)
                speeds = [
                    round(PPM * curve.at(gpus) / own) if gpus and curve.covers(gpus) else 0
                    for gpus in range(most + 1)
                ]
                table[key] = (len(table), speeds)
            rows.append(table[key][0])
        speeds_of = [speeds for _, speeds in table.values()] or [[0]]
        return cls(asked, np.array(speeds_of, np.int64), np.array(rows, np.int64))

    def rates(self, job: Int, gpus: Int) -> Int:
        """Returns the speed of each of these jobs (rows,), millionths; 0 without GPUs."""
        row = self.row[job]
        on_curve = self.table[np.maximum(row, 0), np.where(row >= 0, gpus, 0)]
        return np.where(gpus == 0, np.int64(0), np.where(row >= 0, on_curve, np.int64(PPM)))

    def elastic(self, job: Int) -> Int:
        """Returns 1 for each of these jobs that runs on several sizes, else 0."""
        return (self.row[job] >= 0).astype(np.int64)

    def speeds(self, job: int) -> Int:
        """Returns the speed of a job on 0, 1, 2, ... GPUs, 0 where it cannot run."""
        if self.row[job] >= 0:
            return np.asarray(self.table[self.row[job]])
        only = np.zeros(int(self.asked[job]) + 1, np.int64)
        only[-1] = PPM
        return only
