"""Knobs by search or by a head: which relays and warm-up depth a kept plan gets, and what that is worth.

The search sets them for the filtered links (`policy.control.knobs`), the head predicts for the settings that
the search chose before what each would do in the coming period, from the filtered links alone. Both are held
to the setting that really does most in the period. A micro-batch is no free knob: another one stops the job,
so it belongs to the plan.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.hippo.residual_models import ridge
from benchmarks.hippo.residual_stretches import STEPS, Stretch
from policy.control.knobs import KnobTuner, default_knobs
from policy.control.relayed_times import times_ns
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Decision
from twin.core.plan import Plan
from twin.estimation.link_state_times import States, per_second

Float = NDArray[np.float64]

SETTINGS = 16
"""Settings that the head chooses from: the most frequent answers of the search."""
SAME = 0.001
"""Share of a rate by which a setting may be slower and still count as the best one."""
SPEED = Objective((1.0, 0.0, 0.0), PlanOutcome(1.0, 0.0, 0.0))


@dataclass(frozen=True, eq=False)
class KnobFigures:
    """Rates of one kept plan at I moments (I,), by who sets the knobs; CPU seconds of a decision."""

    best: Float
    search: Float
    head: Float
    fixed: Float  # the setting that did most in the stretches learned from
    none: Float  # direct routes, no extra warm-up
    search_s: float
    head_s: float


def searched(stretch: Stretch, plan: Plan) -> tuple[list[Plan], float]:
    """Returns the plan as the search sets its knobs at each moment, and CPU seconds of a search."""
    tuner, running, found = KnobTuner(stretch.context()), plan, []
    began = time.process_time()
    for view, horizon in zip(stretch.views, stretch.horizons, strict=True):
        decision = tuner.tune(Decision(None, "kept"), replace(view, plan=running), horizon, SPEED)
        running = decision.plan or running
        found.append(running)
    return found, (time.process_time() - began) / len(found)


def rates(stretch: Stretch, settings: Sequence[Plan]) -> Float:
    """Returns the mean true rate of each setting in each period (I, C), its knobs as they are."""
    count = STEPS * len(stretch.views)
    truth = States(stretch.truth.bandwidth_bps[:count], stretch.truth.latency_s[:count])
    rows = [per_second(times_ns(stretch.estimator, one, truth)) for one in settings]
    return np.stack(rows, axis=1).reshape(-1, STEPS, len(rows)).mean(axis=1)


def links_of(stretch: Stretch) -> Float:
    """Returns the log of the filtered bandwidth of every link over its long-run mean, and whether it is dead
    (I, 2 L)."""
    history = stretch.setup.history
    assert history is not None
    off = ~np.eye(history.mean_bps.shape[0], dtype=np.bool_)
    now = np.stack([view.forecast.bandwidth_bps[0][off] for view in stretch.views])
    level = np.log(np.maximum(now / np.maximum(history.mean_bps[off], 1.0), 0.05))
    return np.concatenate([level, (now <= 0).astype(np.float64)], axis=1)


def compared(learned: Sequence[Stretch], test: Stretch, plan: Plan) -> KnobFigures:
    """Returns the figures of one plan on a stretch, the head fitted on others."""
    plain = default_knobs(test.estimator.job, plan)
    before = [searched(one, plain)[0] for one in learned]
    frequent = Counter(one for found in before for one in found).most_common(SETTINGS)
    settings = list(dict.fromkeys([plain, *(one for one, _ in frequent)]))
    known = np.concatenate([rates(one, settings) for one in learned])
    unit = float(known.mean()) or 1.0
    model = ridge(np.concatenate([links_of(one) for one in learned]), known / unit)
    asked = links_of(test)
    began = time.process_time()
    for row in asked:
        model(row[None])
    head_s = (time.process_time() - began) / len(asked)
    own, search_s = searched(test, plain)
    distinct = list(dict.fromkeys([*settings, *own]))
    each = rates(test, distinct)
    at = np.arange(len(each))
    predicted = model(asked).argmax(axis=1)
    return KnobFigures(
        each.max(axis=1), each[at, [distinct.index(one) for one in own]], each[at, predicted],
        each[:, int(known.mean(axis=0).argmax())], each[:, 0], search_s, head_s,
    )  # fmt: skip
