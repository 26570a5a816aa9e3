"""`twin calibrate --runs`: constants from step times of real jobs and the plans that they ran.

Per GPU model, the factors of `twin.calibration.run_factors` that bring predictions closest to the measured
times (least squares of logarithms). A factor is fitted only if the runs can tell it from the others: the
elasticities d log T / d log factor of all runs form a matrix, and a direction whose singular value is below
`LEAST_EFFECT` changes no run by more than runs scatter anyway. A factor with a part in such a direction is
named and stays 1.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.core.units import to_s
from ingest.lake import lake
from twin.calibration import calibration
from twin.calibration.calibration import Calibration
from twin.calibration.least_squares import Fit, mean_error
from twin.calibration.run_factors import NAMES, RunFactors, free
from twin.cases import stage_durations, table_reader
from twin.cases.answer import Constants, answer
from twin.cases.case import Case
from twin.cases.column_definitions import BadCellError
from twin.cases.measured_steps import MeasuredStep, measured_step
from twin.cases.resolve import resolve
from twin.core.domain import Domain
from twin.core.plan import Recompute
from twin.core.switches import PLAIN, TensorMode
from twin.core.transformer import Transformer
from twin.costs.layer_compute import LayerTimes
from twin.pipeline import kernel

Float = NDArray[np.float64]
LEAST_EFFECT = 0.02
"""Change of times, per e-fold change of a factor, that stands out from the scatter of 3 % between runs of
one plan (docs/measured/fidelity.md)."""
MOST_SHARE = 0.1
"""Part of a factor in directions without effect from which on it counts as not identifiable."""
STEP = 1e-3
MOST_FACTOR = 10.0
TERMS = ("compute", "tensor-parallel", "pipeline", "reduction")


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRun:
    """A run: measured and predicted seconds, before and after the fit, and their terms (seconds by name)."""

    case: Case
    step: MeasuredStep
    before_s: float
    after_s: float
    terms_before: Mapping[str, float]
    terms_after: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Figures; `difference_s` is what the fit adds to each term, the rest is `unexplained_s`."""
        return {
            "case": self.case.label, "gpu": self.case.site.gpu.name, "source": self.step.source,
            "steps": self.step.steps, "measured_s": self.step.seconds, "predicted_s": self.before_s,
            "terms_s": dict(self.terms_before), "fitted_s": self.after_s,
            "difference_s": {name: self.terms_after[name] - self.terms_before[name] for name in TERMS},
            "unexplained_s": self.step.seconds - self.after_s,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The calibration with the fitted factors, the runs, and factors left at 1: (GPU, name, reason)."""

    calibration: Calibration
    runs: tuple[LearnedRun, ...]
    left: tuple[tuple[str, str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Schema `twin.runs/1`."""
        found = self.calibration
        assert found.runs is not None
        return {
            "schema": "twin.runs/1", "calibration": found.digest, "factors": found.runs.to_json()["gpus"],
            "runs": [run.to_json() for run in self.runs],
            "not_identifiable": [dict(zip(("gpu", "factor", "why"), one, strict=True)) for one in self.left],
        }  # fmt: skip


def learn(store: Path, path: Path) -> Learned:
    """Factors fitted to the runs in the table at `path`, on top of the calibration in use in `store`.

    Raises:
        InputError: a row is bad, has no measured time, or measured stage times leave nothing to learn.
    """
    table = table_reader.read(path)
    for bad in table.failures:
        raise InputError(bad.describe(path))
    pairs = []
    for row in table.rows:
        try:
            case = resolve(row.cells)
            if case.measured.schedule_only or case.job is None:
                raise BadCellError(
                    "stage_forward_s", "the stages are measured: nothing to fit; leave it empty"
                )
            if case.sites:
                raise BadCellError("gpu_models", "factors are those of one GPU model: name it in gpu_model")
            pairs.append((case, measured_step(store, row.cells, case.site.gpu.name)))
        except BadCellError as error:
            raise InputError(f"{path}:{row.line} {error.column}: {error}") from error
    base = calibration.load(store) or Calibration(lake.digest(store), {}, {})
    return fit(replace(base, runs=None), pairs, hashlib.sha256(path.read_bytes()).hexdigest())


def fit(base: Calibration, pairs: Sequence[tuple[Case, MeasuredStep]], file_digest: str) -> Learned:
    """Factors that bring the predictions of `base` closest to the measured times."""
    gpus: dict[str, dict[str, Fit]] = {}
    left: list[tuple[str, str, str]] = []
    for gpu in sorted({case.site.gpu.name for case, _ in pairs}):
        mine = [(case, step) for case, step in pairs if case.site.gpu.name == gpu]
        gpus[gpu], names = _fitted(base, mine, gpu)
        left += [(gpu, name, why) for name, why in names.items()]
    sources = tuple(
        {"case": case.label, "gpu": case.site.gpu.name, "measured_s": step.seconds, "source": step.source}
        for case, step in pairs
    )
    after = replace(base, runs=RunFactors(gpus, sources, file_digest))
    runs = tuple(
        LearnedRun(
            case, step, predicted_s(case, base), predicted_s(case, after), terms_s(case, base),
            terms_s(case, after),
        )
        for case, step in pairs
    )  # fmt: skip
    return Learned(after, runs, tuple(left))


def predicted_s(case: Case, constants: Calibration) -> float:
    """Iteration time of `case`."""
    return answer(case, Constants(constants, site=constants.site)).iter_s


def _with(base: Calibration, gpu: str, logs: Float) -> Calibration:
    """`base` with the factors exp(logs) of `gpu`."""
    fits = {
        name: Fit({"factor": float(np.exp(x))}, 0, None, 0.0) for name, x in zip(NAMES, logs, strict=True)
    }
    return replace(base, runs=RunFactors({gpu: fits}, (), ""))


def _fitted(
    base: Calibration, pairs: Sequence[tuple[Case, MeasuredStep]], gpu: str
) -> tuple[dict[str, Fit], dict[str, str]]:
    """Fits of the factors of one GPU model, and the reasons of those that stay 1."""
    from scipy.optimize import least_squares  # heavy, needed here only

    measured = np.array([step.seconds for _, step in pairs])

    def times(logs: Float) -> Float:
        constants = _with(base, gpu, logs)
        return np.array([predicted_s(case, constants) for case, _ in pairs])

    none = np.zeros(len(NAMES))
    why = not_identifiable(elasticities(times, none))
    chosen = [n for n, name in enumerate(NAMES) if name not in why]
    if not chosen:
        return {}, why

    def rest(some: Float) -> Float:
        logs = none.copy()
        logs[chosen] = some
        found: Float = np.log(times(logs) / measured)
        return found

    limit = np.log(MOST_FACTOR)
    found = least_squares(rest, none[chosen], bounds=(-limit, limit), diff_step=[STEP] * len(chosen))
    before = mean_error(times(none), measured)
    after = mean_error(np.exp(rest(found.x)), np.ones(len(measured)))
    return {
        NAMES[n]: Fit({"factor": float(np.exp(x))}, len(measured), before, after)
        for n, x in zip(chosen, found.x, strict=True)
    }, why


def elasticities(times: Any, logs: Float) -> Float:
    """d log T / d log factor (R, F) of R runs, by central differences."""
    columns = []
    for n in range(len(logs)):
        step = np.zeros(len(logs))
        step[n] = STEP
        columns.append(np.log(times(logs + step) / times(logs - step)) / (2 * STEP))
    return np.stack(columns, axis=1)


def not_identifiable(effects: Float) -> dict[str, str]:
    """Reason for every factor that the runs with the elasticities `effects` (R, F) cannot show."""
    runs, felt = len(effects), np.max(np.abs(effects), axis=0) >= LEAST_EFFECT
    found = dict.fromkeys(np.array(NAMES)[~felt].tolist(), "changes none of these runs noticeably")
    count = int(np.sum(felt))
    if not count:
        return found
    _, singular, directions = np.linalg.svd(effects[:, felt] / np.sqrt(runs), full_matrices=True)
    sizes = np.concatenate([singular, np.zeros(count - len(singular))])
    silent = directions[sizes < LEAST_EFFECT]
    share = np.sqrt(np.sum(silent**2, axis=0))
    for name, part in zip(np.array(NAMES)[felt].tolist(), share, strict=True):
        if part > MOST_SHARE:
            found[name] = (
                f"these {runs} runs tell {count - len(silent)} of {count} factors apart, not this one; add "
                "runs with other widths, nodes or micro-batches"
            )
    return found


@dataclass(frozen=True, slots=True)
class _Alone:
    """A source of layer times without tensor-parallel collectives."""

    constants: Calibration

    def __call__(
        self, model: Transformer, domain: Domain, tp: int, micro_batch: int, recompute: Recompute,
        *, mode: TensorMode = PLAIN,
    ) -> LayerTimes:  # fmt: skip
        return self.constants(model, free(domain), tp, micro_batch, recompute, mode=mode)


def terms_s(case: Case, constants: Calibration) -> dict[str, float]:
    """The predicted iteration in terms that add up to it: what it loses when reduction is free, then stage
    boundaries too, then tensor-parallel collectives; the rest, bubbles and update in it, is computing."""
    site = constants.site(case.site, "intra_node_bps" not in case.defaults)
    case = replace(case, site=site)
    timing, update = stage_durations.durations(case, stage_durations.modelled(case, constants))
    lone, _ = stage_durations.durations(case, stage_durations.modelled(case, _Alone(constants)))
    zero = timing.of * 0
    joined = replace(timing, tail=update)
    apart = replace(joined, of=zero, lf=zero, ob=zero, lb=zero)
    alone = replace(apart, tf=lone.tf, tb=lone.tb, tw=lone.tw)
    totals = [to_s(int(kernel.iteration_ns(one)[0])) for one in (timing, joined, apart, alone)]
    return {
        "compute": totals[3], "tensor-parallel": totals[2] - totals[3], "pipeline": totals[1] - totals[2],
        "reduction": totals[0] - totals[1],
    }  # fmt: skip
