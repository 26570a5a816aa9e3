"""Leave or stay: iterations of a run that begins with the best plan of the past, under different rules.

A stretch is played by its true rates, period by period. A move loses what the new plan would have done during
its pause; knobs are turned in every state whoever decides, so that only moves differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.hippo.residual_models import Fit, Model, area
from benchmarks.hippo.residual_stretches import Stretch
from policy.baselines.mpc import Mpc
from policy.control.knobs import default_knobs
from twin.core.plan import Plan

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MARGINS = (0.01, 0.02, 0.05, 0.1, 0.2, float("inf"))
"""Of predicted gain, in shares of the past rate; infinite: never move."""
FURTHEST = 2.0
PAYS = 0.01


def lost(rates: Float, moment: int, pause_s: float, period_s: float) -> float:
    """Returns the iterations of a plan with these rates (I + some,) during a pause from a moment on."""
    done = np.concatenate([[0.0], np.cumsum(rates[moment:])])
    whole = min(pause_s / period_s, len(done) - 1.0)
    return float(np.interp(whole, np.arange(len(done)), done) * period_s)


def played(stretch: Stretch, path: Sequence[Plan]) -> Float:
    """Returns the iterations of each period (I,) under the plans of a path; what a move loses is counted in
    the period that it begins in."""
    found, before = np.zeros(len(path)), stretch.plans[0]
    for n, plan in enumerate(path):
        rates = stretch.true(plan)
        found[n] = rates[n] * stretch.period_s
        if plan != before:
            found[n] -= lost(rates, n, stretch.pause(before, plan), stretch.period_s)
        before = plan
    return found


def losses(stretch: Stretch) -> Float:
    """Returns the iterations that each move loses at each moment (I, P, P)."""
    found = np.zeros((len(stretch.views), *stretch.pauses.shape))
    done = np.concatenate([np.zeros((1, len(stretch.plans))), np.cumsum(stretch.truths, axis=0)])
    for n in range(len(found)):
        end = np.minimum(n + stretch.pauses / stretch.period_s, len(done) - 1.0)
        floor = np.minimum(end.astype(np.int64), len(done) - 2)
        new = np.arange(len(stretch.plans))[None, :]
        work = done[floor, new] + (end - floor) * (done[floor + 1, new] - done[floor, new]) - done[n]
        found[n] = work * stretch.period_s
    return found


def best_path(gains: Float, moved: Float) -> list[int]:
    """Returns the plans (I,) by which most is done of `gains` (I, P), less `moved` (I, P, P) for every move;
    plan 0 runs before the first moment."""
    worth, before = np.full(gains.shape[1], -np.inf), []
    worth[0] = 0.0
    for gain, loss in zip(gains, moved, strict=True):
        each = worth[:, None] - loss
        before.append(each.argmax(axis=0))
        worth = each.max(axis=0) + gain
    path = [int(worth.argmax())]
    for came in reversed(before[1:]):
        path.append(int(came[path[-1]]))
    return path[::-1]


def with_hindsight(stretch: Stretch) -> list[Plan]:
    """Returns the path by which most is done."""
    gains = stretch.truths[: len(stretch.views)] * stretch.period_s
    return [stretch.plans[n] for n in best_path(gains, losses(stretch))]


def of_rule(stretch: Stretch) -> list[Plan]:
    """Returns the path of `mpc`: candidates, horizon, margin, break-even, knobs, `_worth_staying`."""
    policy, running = Mpc(), stretch.plans[0]
    policy.reset(stretch.context())
    job, path = stretch.estimator.job, []
    for view in stretch.views:
        decision = policy.decide(replace(view, plan=running))
        running = decision.plan or running
        path.append(default_knobs(job, running))
    return path


def pair_features(stretch: Stretch, moment: int, old: int, periods: int) -> Float:
    """Returns what is known of moving from a plan to each one (P, G)."""
    known = stretch.features[moment]
    levels = [np.log(np.maximum(x / x[old], 0.1)) for x in (
        stretch.mean, np.maximum(stretch.now[moment], 1e-9), np.maximum(stretch.ahead[moment], 1e-9),
    )]  # fmt: skip
    pause = np.minimum(stretch.pauses[old] / (periods * stretch.period_s), 1.0)
    own = np.broadcast_to(known[old], known.shape)
    return np.concatenate([known - own, own, np.stack([*levels, pause], axis=1)], axis=1)


def true_gains(stretch: Stretch, periods: int) -> Float:
    """Returns what moving from each plan to each other one would bring over so many periods (I, P, P), in
    shares of the old plan's past rate; not a number where that is not known."""
    future, worked = stretch.future(periods), 1 - stretch.pauses / (periods * stretch.period_s)
    gain = future[:, None, :] * np.maximum(worked, 0.0) - future[:, :, None]
    gain = np.clip(gain / stretch.mean[:, None], -FURTHEST, FURTHEST)
    gain[:, np.arange(len(stretch.plans)), np.arange(len(stretch.plans))] = 0.0
    return gain


def lessons(learned: Sequence[Stretch], periods: int) -> tuple[Float, Float]:
    """Returns features and gains of all moves at the moments whose future is known."""
    rows, gains = [], []
    for stretch in learned:
        true = true_gains(stretch, periods)
        for moment in np.flatnonzero(np.isfinite(true[:, 0, 0])):
            for old in range(len(stretch.plans)):
                others = np.arange(len(stretch.plans)) != old
                rows.append(pair_features(stretch, moment, old, periods)[others])
                gains.append(true[moment, old, others])
    return np.concatenate(rows), np.concatenate(gains)


def learned_path(stretch: Stretch, gain_of: Callable[[int, int], Float], margin: float) -> list[Plan]:
    """Returns the path of moving to the plan of the largest predicted gain where that exceeds the margin."""
    running, path = 0, []
    for moment in range(len(stretch.views)):
        gain = gain_of(moment, running)
        best = int(gain.argmax())
        running = best if gain[best] > margin else running
        path.append(stretch.plans[running])
    return path


def predictor(stretch: Stretch, model: Model, periods: int) -> Callable[[int, int], Float]:
    """Returns the function of moment and running plan that predicts the gain of moving to each plan (P,);
    staying is 0."""
    known: dict[tuple[int, int], Float] = {}

    def gain_of(moment: int, old: int) -> Float:
        if (moment, old) not in known:
            gain = model(pair_features(stretch, moment, old, periods))
            gain[old] = 0.0
            known[moment, old] = gain
        return known[moment, old]

    return gain_of


def of_model(fit: Fit, learned: Sequence[Stretch], test: Stretch, periods: int) -> tuple[list[Plan], float]:
    """Returns the path of a model that is fitted, and whose margin is chosen, on the stretches learned from;
    and the area under the curve of its first prediction: does the best move from the first plan pay?"""
    model = fit(*lessons(learned, periods))
    predictors = [predictor(one, model, periods) for one in learned]

    def brought(margin: float) -> float:
        return sum(
            float(played(one, learned_path(one, gain_of, margin)).sum())
            for one, gain_of in zip(learned, predictors, strict=True)
        )

    margin = max(reversed(MARGINS), key=brought)
    gain_of, true = predictor(test, model, periods), true_gains(test, periods)[:, 0]
    known = np.flatnonzero(np.isfinite(true[:, 0]))
    scores = np.array([gain_of(moment, 0).max() for moment in known])
    return learned_path(test, gain_of, margin), area(scores, true[known].max(axis=1) > PAYS)
