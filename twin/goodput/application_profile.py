"""Goodput of an application by its measured profile: step times by placement, gradient noise by batch.

Files of one folder, as Sia and Pollux published them: `placements-GPU.csv` (placement, local_bsz, step_time,
sync_time) and `validation-BATCH.csv` (progress, grad_sqr, grad_var), one row an epoch; variances are those at
the smallest batch, whatever the batch of the run. Between measured sizes values are interpolated, outside
they are refused.
"""

import csv
import re
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core import text_files
from ingest.core.errors import InputError, NotFoundError, UsageError
from twin.goodput.efficiency import adascale_gain, noise_scale, statistical_efficiency

Values = NDArray[np.float64]
MOST_BYTES = 2**24
HALF = 0.5
"""Share of the training at which noise is taken if none is named, or the end of the first epoch behind it."""
_BATCH = re.compile(r"validation-\d{1,7}")


@dataclass(frozen=True, slots=True)
class ProfiledBatch:
    """A global batch on the replicas: samples of a GPU in one pass, passes, and what comes of it.

    `noise`: noise scale, samples; `goodput`: samples a second times statistical efficiency.
    """

    batch: int
    local_batch: float
    accumulation: int
    step_s: float
    samples_s: float
    noise: float
    efficiency: float
    goodput: float
    learning_rate_factor: float


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """Batches of a profiled application and the one with the most goodput.

    `left_out`: measured batches that give a GPU fewer samples than were measured.
    """

    application: str
    gpu: str
    placement: str
    progress: float
    initial: int
    batches: tuple[ProfiledBatch, ...]
    chosen: ProfiledBatch
    left_out: tuple[int, ...]

    @property
    def at_edge(self) -> bool:
        """True where the largest measured batch is the best: a larger one may be better."""
        return self.chosen is self.batches[-1]

    def to_json(self) -> dict[str, Any]:
        """The answer of `twin batch --profiles`, `twin.batch/1`."""
        return {"schema": "twin.batch/1", **asdict(self), "at_edge": self.at_edge}


@dataclass(frozen=True, slots=True, eq=False)
class ApplicationProfile:
    """Step times of one placement, ascending in `local` samples a GPU, and epochs of each global batch.

    `sync_s`: the part of `step_s` in which gradients are synchronised, seconds.

    `noise[batch]`: share of the training that is done and noise scale, samples, at the end of each epoch.
    """

    application: str
    gpu: str
    placement: str
    local: Values
    step_s: Values
    sync_s: Values
    noise: dict[int, tuple[Values, Values]]

    @property
    def replicas(self) -> int:
        """GPUs of the placement."""
        return sum(map(int, self.placement))

    @property
    def measured_from(self) -> float:
        """Share of the training from which on the noise of every batch was measured."""
        return max(float(share[0]) for share, _ in self.noise.values())

    def step_seconds(self, local: float, passes: int = 1) -> float:
        """Seconds of a step of `passes` at `local` samples a GPU each; gradients are synchronised once.

        Raises:
            UsageError: outside what was measured.
        """
        if not self.local[0] <= local <= self.local[-1]:
            raise UsageError(
                f"{self.application} on {self.gpu}: {local:g} samples a GPU lie outside the profile, which "
                f"has {self.local[0]:g} to {self.local[-1]:g}"
            )
        alone_s, sync_s = (float(np.interp(local, self.local, row)) for row in (self.step_s, self.sync_s))
        return passes * alone_s - (passes - 1) * sync_s

    def noise_at(self, batch: int, progress: float) -> float:
        """Noise scale at a global batch after `progress` of the training; linear in the log of the batch."""
        known = sorted(self.noise)
        if not known[0] <= batch <= known[-1]:
            raise UsageError(
                f"{self.application}: batch {batch} lies outside the profile, which has {known[0]} to "
                f"{known[-1]}"
            )
        if not self.measured_from <= progress <= 1:
            raise UsageError(
                f"{self.application}: its gradients were measured from {self.measured_from:.3f} of the "
                "training on; give a progress from there to 1"
            )
        found = [float(np.interp(progress, *self.noise[one])) for one in known]
        return float(np.interp(np.log(batch), np.log(known), found))

    def answer(self, initial: int | None = None, progress: float | None = None) -> ProfileAnswer:
        """Goodput of every measured global batch, from the initial one (the smallest by default).

        A batch a GPU above the largest that was measured is accumulated in equal passes.

        Raises:
            UsageError: no measured batch fits the placement, or the initial one was not measured.
        """
        first = min(self.noise) if initial is None else initial
        at = max(HALF, self.measured_from) if progress is None else progress
        rows, left_out = [], []
        for batch in sorted(one for one in self.noise if one >= first):
            each = batch / self.replicas
            passes = max(1, ceil(each / float(self.local[-1])))
            if each / passes < self.local[0]:
                left_out.append(batch)
                continue
            step_s = self.step_seconds(each / passes, passes)
            noise = self.noise_at(batch, at)
            efficiency, rate = statistical_efficiency(noise, first, batch), batch / step_s
            rows.append(
                ProfiledBatch(
                    batch,
                    each / passes,
                    passes,
                    step_s,
                    rate,
                    noise,
                    efficiency,
                    rate * efficiency,
                    adascale_gain(noise, first, batch),
                )
            )
        if not rows:
            raise UsageError(
                f"{self.application}: no measured batch from {first} up gives each of {self.replicas} GPUs "
                f"{self.local[0]:g} samples or more; take fewer GPUs"
            )
        chosen = max(rows, key=lambda one: one.goodput)
        return ProfileAnswer(
            self.application, self.gpu, self.placement, at, first, tuple(rows), chosen, tuple(left_out)
        )


def read(folder: Path, application: str, gpu: str, placement: str) -> ApplicationProfile:
    """Profile of an application on a placement: one digit a node, its GPUs.

    Raises:
        NotFoundError: no such application or GPU. UsageError: the placement was not measured. InputError: a
        cell is no number.
    """
    home = folder / application
    path = home / f"placements-{gpu}.csv"
    if not path.is_file():
        known = sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
        gpus = sorted(one.stem.partition("-")[2] for one in home.glob("placements-*.csv"))
        have = f"GPUs {', '.join(gpus)}" if gpus else f"applications {', '.join(known) or 'none'}"
        raise NotFoundError(f"{path}: there is no such profile; {folder} has {have}")
    rows = _numbers(path, "local_bsz", "step_time", "sync_time", placement=placement)
    if not rows:
        raise UsageError(
            f"{path}: placement {placement} was not measured; write one digit a node, as 4 or 44"
        )
    local, step_s, sync_s = np.array(sorted(rows)).T
    epochs = {
        int(one.stem.partition("-")[2]): one
        for one in home.glob("validation-*.csv")
        if _BATCH.fullmatch(one.stem)
    }
    if not epochs:
        raise NotFoundError(f"{home}: there is no validation-BATCH.csv with gradients")
    noise, smallest = {}, min(epochs)
    for batch, one in epochs.items():
        seen = np.array(_numbers(one, "progress", "grad_var", "grad_sqr"))
        scales = [noise_scale(var, sqr, smallest) for _, var, sqr in seen.tolist()]
        noise[batch] = seen[:, 0] / seen[-1, 0], np.array(scales)
    return ApplicationProfile(application, gpu, placement, local, step_s, sync_s, noise)


def _numbers(path: Path, *columns: str, placement: str | None = None) -> list[tuple[float, ...]]:
    """Rows of numbers of a CSV file; of one placement where it is named."""
    found = []
    for line, row in enumerate(csv.DictReader(text_files.read(path, most_bytes=MOST_BYTES).splitlines()), 2):
        if placement is not None and row.get("placement") != placement:
            continue
        try:
            found.append(tuple(float(row[column]) for column in columns))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}:{line}: {', '.join(columns)} are no numbers; mend the row") from error
    return found
