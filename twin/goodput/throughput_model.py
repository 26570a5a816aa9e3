"""Pollux's model of the time of a step: gradients and their synchronisation, seven fitted numbers.

A replica computes gradients in alpha_grad + beta_grad x local batch; replicas synchronise in alpha + beta x
(replicas - 2), with numbers of their own within a node and over several; gamma says how far both overlap,
from 1, one after the other, on. Source: Qiao et al., Pollux, OSDI 2021, 3.2 and the fit in 4.1 (L-BFGS-B on
the root mean squared error of logarithms, gamma from 1 to 10). The numbers are fitted as logarithms, which
keeps them positive and of one order. What was never measured is not assumed to be free, as a scheduler may
that wants to try it: it has no finite time here.
"""

from dataclasses import dataclass
from math import inf
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingest.core.errors import UsageError

Values = NDArray[np.float64]
Whole = NDArray[np.int64]
LEAST_S, MOST_S = 1e-8, 1e3
"""Bounds of the six times, seconds."""
GAMMA = (1.0, 10.0)
START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 2.0)
TIMES = 6
"""Numbers of the model that are times; the seventh is gamma."""


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Measured steps, one element (n,) each: nodes, replicas (GPUs), samples a GPU, seconds of a step, and
    the part of it in which gradients are synchronised."""

    nodes: Whole
    replicas: Whole
    local: Values
    step_s: Values
    sync_s: Values

    def __len__(self) -> int:
        return len(self.local)

    def chosen(self, mask: NDArray[np.bool_]) -> Self:
        """Returns the steps of a mask (n,)."""
        return type(self)(
            self.nodes[mask], self.replicas[mask], self.local[mask], self.step_s[mask], self.sync_s[mask]
        )

    def shapes(self) -> list[tuple[int, int]]:
        """Returns the pairs of nodes and replicas that were measured, ascending."""
        return sorted(set(zip(self.nodes.tolist(), self.replicas.tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """The numbers of Pollux, its theta_sys: seconds, seconds a sample, seconds a replica, and gamma."""

    alpha_grad: float
    beta_grad: float
    alpha_local: float
    beta_local: float
    alpha_node: float
    beta_node: float
    gamma: float

    def gradient_s(self, local: ArrayLike) -> Values:
        """Returns the seconds of one pass over `local` samples a GPU (n,)."""
        found: Values = self.alpha_grad + self.beta_grad * np.asarray(local, np.float64)
        return found

    def synchronise_s(self, nodes: ArrayLike, replicas: ArrayLike) -> Values:
        """Returns the seconds in which replicas synchronise (n,); 0 for one, infinite where no such placement
        was measured."""
        each = np.maximum(np.asarray(replicas, np.float64) - 2, 0)
        over = np.asarray(nodes) > 1
        first = np.where(over, self.alpha_node, self.alpha_local)
        found: Values = first + np.where(over, self.beta_node, self.beta_local) * each
        return np.where(np.asarray(replicas) == 1, 0.0, found)

    def step_s(
        self, nodes: ArrayLike, replicas: ArrayLike, local: ArrayLike, passes: ArrayLike = 1
    ) -> Values:
        """Returns the seconds of a step (n,) of `passes` over `local` samples a GPU, synchronised once."""
        gradient, synchronise = self.gradient_s(local), self.synchronise_s(nodes, replicas)
        last = (gradient**self.gamma + synchronise**self.gamma) ** (1 / self.gamma)
        found: Values = (np.asarray(passes) - 1) * gradient + last
        return found


def fit(times: StepTimes, start: ThroughputModel | None = None) -> ThroughputModel:
    """Returns the model nearest to measured steps: the errors of a pass and of a step, in logarithms.

    `start`: a model to begin at, as that of almost the same steps. Numbers that no step depends on are not
    fitted: synchronisation of a kind of placement that was not measured is infinite, and free of replicas
    where none has more than two.

    Raises:
        UsageError: a step takes no longer than its synchronisation, or there is none.
    """
    from scipy.optimize import minimize

    if not len(times) or (times.step_s <= times.sync_s).any() or times.sync_s.min() < 0:
        raise UsageError("the model of steps needs step times above their synchronisation; mend the profile")
    begin = START if start is None else _numbers(start)
    x0 = np.append(np.log(np.clip(begin[:TIMES], LEAST_S, MOST_S)), begin[TIMES])
    bounds = [(np.log(LEAST_S), np.log(MOST_S))] * TIMES + [GAMMA]
    pass_log, step_log = np.log(times.step_s - times.sync_s), np.log(times.step_s)
    found = minimize(_misfit, x0, (times, pass_log, step_log), "L-BFGS-B", jac=True, bounds=bounds)
    return _known(times, np.append(np.exp(found.x[:TIMES]), found.x[TIMES]))


def _numbers(model: ThroughputModel) -> tuple[float, ...]:
    """Returns the numbers of a model, those that it does not know as at the start."""
    known = (
        model.alpha_grad, model.beta_grad, model.alpha_local, model.beta_local, model.alpha_node,
        model.beta_node, model.gamma,
    )  # fmt: skip
    return tuple(one if 0 < one < inf else usual for one, usual in zip(known, START, strict=True))


def _known(times: StepTimes, numbers: Values) -> ThroughputModel:
    """Returns the model with what was never measured as such."""
    for first, here in ((2, times.nodes == 1), (4, times.nodes > 1)):
        sizes = times.replicas[here]
        if not (sizes > 1).any():
            numbers[first], numbers[first + 1] = inf, 0.0
        elif not (sizes > 2).any():
            numbers[first + 1] = 0.0
    return ThroughputModel(*numbers.tolist())


def _misfit(x: Values, times: StepTimes, pass_log: Values, step_log: Values) -> tuple[float, Values]:
    """Returns the sum of both root mean squared errors at x, logarithms of times and gamma, and its gradient
    (7,)."""
    theta, gamma = np.exp(x[:TIMES]), x[TIMES]
    each, over = np.maximum(times.replicas - 2.0, 0), times.nodes > 1
    alone = times.replicas == 1
    gradient = theta[0] + theta[1] * times.local
    within, between = theta[2] + theta[3] * each, theta[4] + theta[5] * each
    synchronise = np.where(alone, LEAST_S, np.where(over, between, within))
    log_g, log_s = np.log(gradient), np.log(synchronise)
    total = np.logaddexp(gamma * log_g, gamma * log_s)
    share = np.exp(gamma * log_g - total)  # of gradients in the power of gamma
    of_gradient = np.stack((theta[0] / gradient, theta[1] * times.local / gradient))
    here, there = (~over & ~alone) / synchronise, over / synchronise
    of_sync = np.stack((theta[2] * here, theta[3] * each * here, theta[4] * there, theta[5] * each * there))
    of_gamma = (share * log_g + (1 - share) * log_s) / gamma - total / gamma**2
    of_step = np.vstack((share * of_gradient, (1 - share) * of_sync, of_gamma))
    first, first_slope = _root_mean_square(log_g - pass_log, of_gradient)
    second, slope = _root_mean_square(total / gamma - step_log, of_step)
    slope[:2] += first_slope
    return first + second, slope


def _root_mean_square(error: Values, slopes: Values) -> tuple[float, Values]:
    """Returns the root of the mean square of errors (n,) and its slopes, from those of each error (k, n)."""
    root = max(float(np.sqrt(np.mean(error**2))), 1e-12)
    return root, slopes @ error / (len(error) * root)


@dataclass(frozen=True, slots=True)
class ShapeError:
    """Error of steps on one number of nodes and replicas that the model was not fitted to: mean and largest
    of abs(predicted / measured - 1) over the sizes of a batch."""

    nodes: int
    replicas: int
    mean: float
    largest: float


def left_out_errors(times: StepTimes, model: ThroughputModel) -> tuple[ShapeError, ...]:
    """Returns the error on each measured pair of nodes and replicas when the fit leaves out all its steps.

    `model`: the fit to all steps, at which each begins. Pairs whose kind of placement nothing else measures
    are left out, since they cannot be predicted.
    """
    found = []
    for nodes, replicas in times.shapes():
        here = (times.nodes == nodes) & (times.replicas == replicas)
        if here.all():
            continue
        other, seen = fit(times.chosen(~here), model), times.chosen(here)
        error = np.abs(other.step_s(seen.nodes, seen.replicas, seen.local) / seen.step_s - 1)
        if np.isfinite(error).all():
            found.append(ShapeError(nodes, replicas, float(error.mean()), float(error.max())))
    return tuple(found)
