"""Goodput of an application by its measured profile: step times by placement, gradient noise by batch.

Between measured sizes of a batch values are interpolated, outside they are refused. On a placement that was
not measured step times are those of Pollux's model, fitted to all that were.
"""

from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from twin.goodput import throughput_model
from twin.goodput.efficiency import adascale_gain, statistical_efficiency
from twin.goodput.profiled_steps import all_steps, noise_scales, placement_steps, shape
from twin.goodput.throughput_model import Values

HALF = 0.5
"""Share of the training at which noise is taken if none is named, or the end of the first epoch behind it."""


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

    `left_out`: measured batches that give a GPU fewer samples than were measured. `step_error`: where the
    placement was not measured, the mean error of steps on pairs of nodes and GPUs left out of the fit.
    """

    application: str
    gpu: str
    placement: str
    progress: float
    initial: int
    batches: tuple[ProfiledBatch, ...]
    chosen: ProfiledBatch
    left_out: tuple[int, ...]
    step_error: float | None = None

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

    `sync_s`: the part of `step_s` in which gradients are synchronised, seconds. `step_error`: as in
    `ProfileAnswer`.

    `noise[batch]`: share of the training that is done and noise scale, samples, at the end of each epoch.
    """

    application: str
    gpu: str
    placement: str
    local: Values
    step_s: Values
    sync_s: Values
    noise: dict[int, tuple[Values, Values]]
    step_error: float | None = None

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
            self.application, self.gpu, self.placement, at, first, tuple(rows), chosen, tuple(left_out),
            self.step_error,
        )  # fmt: skip


def read(folder: Path, application: str, gpu: str, placement: str) -> ApplicationProfile:
    """Returns the profile of an application on a placement: one digit a node, its GPUs.

    Raises:
        NotFoundError: no such application or GPU. UsageError: the placement is none, or larger than any that
        was measured. InputError: a cell is no number.
    """
    measured, noise = placement_steps(folder, application, gpu), noise_scales(folder, application)
    alike = [one for one in measured if sorted(one) == sorted(placement)]  # the order of nodes is nothing
    if alike:
        placement = placement if placement in measured else alike[0]
        seen = measured[placement]
        return ApplicationProfile(application, gpu, placement, seen.local, seen.step_s, seen.sync_s, noise)
    local, step_s, sync_s, error = _modelled(folder, application, gpu, placement)
    return ApplicationProfile(application, gpu, placement, local, step_s, sync_s, noise, error)


def _modelled(
    folder: Path, application: str, gpu: str, placement: str
) -> tuple[Values, Values, Values, float]:
    """Returns all sizes a GPU that were measured anywhere, step times and the part that synchronises, and the
    mean error of pairs of nodes and GPUs left out of the fit."""
    (nodes, replicas), steps = shape(placement), all_steps(folder, application, gpu)
    if nodes > steps.nodes.max() or replicas > steps.replicas.max():
        raise UsageError(
            f"{application} on {gpu}: placement {placement} has {nodes} nodes and {replicas} GPUs; measured "
            f"were up to {steps.nodes.max()} nodes and {steps.replicas.max()} GPUs: take fewer"
        )
    model = throughput_model.fit(steps)
    if not np.isfinite(model.synchronise_s(nodes, replicas)):
        kind = "over several nodes" if nodes > 1 else "of several GPUs in a node"
        raise UsageError(f"{application} on {gpu}: no placement {kind} was measured; take another")
    local = np.unique(steps.local)
    step_s = model.step_s(nodes, replicas, local)
    errors = throughput_model.left_out_errors(steps, model)
    return local, step_s, step_s - model.gradient_s(local), float(np.mean([one.mean for one in errors]))
