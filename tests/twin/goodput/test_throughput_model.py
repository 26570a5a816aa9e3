from dataclasses import astuple

import numpy as np
import pytest

from ingest.core.errors import UsageError
from twin.goodput.throughput_model import (
    StepTimes,
    ThroughputModel,
    _misfit,
    fit,
    left_out_errors,
)

TRUE = ThroughputModel(0.05, 0.002, 0.03, 0.004, 0.2, 0.01, 2.0)


def steps(shapes: list[tuple[int, int]], model: ThroughputModel = TRUE) -> StepTimes:
    rows = [(nodes, replicas, local) for nodes, replicas in shapes for local in (8, 16, 32, 64, 128)]
    nodes, replicas, local = (np.array(column) for column in zip(*rows, strict=True))
    step_s = model.step_s(nodes, replicas, local)
    return StepTimes(nodes, replicas, local.astype(float), step_s, step_s - model.gradient_s(local))


SHAPES = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 8), (2, 12), (3, 12)]


def test_a_step_overlaps_synchronisation_as_the_paper_says() -> None:
    gradient = 0.05 + 0.002 * 16
    assert TRUE.step_s(1, 1, 16) == pytest.approx(gradient)
    assert TRUE.step_s(2, 6, 16) == pytest.approx((gradient**2 + (0.2 + 0.01 * 4) ** 2) ** 0.5)
    assert TRUE.step_s(1, 2, 16, 3) == pytest.approx(2 * gradient + (gradient**2 + 0.03**2) ** 0.5)


def test_the_fit_finds_the_model_that_made_the_steps() -> None:
    seen = steps(SHAPES)
    found = fit(seen)

    assert found.step_s(seen.nodes, seen.replicas, seen.local) == pytest.approx(seen.step_s, rel=0.01)
    assert astuple(found) == pytest.approx(astuple(TRUE), rel=0.1)
    assert max(one.largest for one in left_out_errors(seen, found)) < 0.02


def test_the_slope_of_the_misfit_is_that_of_differences() -> None:
    seen = steps(SHAPES)
    logs = np.log(seen.step_s - seen.sync_s), np.log(seen.step_s)
    x = np.append(np.log([0.1, 0.003, 0.02, 0.01, 0.3, 0.02]), 1.7)
    _, slope = _misfit(x, seen, *logs)
    for at in range(len(x)):
        nudge = np.zeros(len(x))
        nudge[at] = 1e-6
        ahead, behind = _misfit(x + nudge, seen, *logs)[0], _misfit(x - nudge, seen, *logs)[0]
        assert slope[at] == pytest.approx((ahead - behind) / 2e-6, rel=1e-4)


def test_a_kind_of_placement_that_was_not_measured_has_no_finite_time() -> None:
    found = fit(steps([(1, 1), (1, 2)]))
    assert np.isinf(found.step_s(2, 2, 16))
    assert found.step_s(1, 2, 16) == pytest.approx(TRUE.step_s(1, 2, 16), rel=0.02)
    assert [(one.nodes, one.replicas) for one in left_out_errors(steps([(1, 1), (1, 2)]), found)] == [(1, 1)]


def test_steps_shorter_than_their_synchronisation_are_refused() -> None:
    seen = steps([(1, 2)])
    with pytest.raises(UsageError, match="above their synchronisation"):
        fit(StepTimes(seen.nodes, seen.replicas, seen.local, seen.step_s, seen.step_s))
