"""What fixed plans reach: as their runs do, and nothing that can be enumerated is missing."""

from pathlib import Path

import numpy as np
import pytest

from policy.bound import fixed_plan_front
from policy.bound.best_fixed_plan import every_plan
from policy.bound.time_grid import grid
from replay.bench import comparison
from replay.metrics import pareto
from tests.support.toys import BPS, STEPS, toy_run, without_lake
from tests.support.worlds import toy_setup


def test_the_figures_of_a_plan_are_those_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    done = toy_run(tmp_path, "static")
    kpis, (plan,) = done.kpis, comparison.UsedPlans.of(tmp_path, [done.run_id]).plans
    setup = toy_setup(bps=BPS, latency_s=0.01, steps=STEPS)
    estimator, made = setup.estimator(), grid(setup.wan, [], 11.35)
    found = fixed_plan_front.figures(estimator, made, plan)
    assert found is not None and kpis.usd_per_token is not None and kpis.utilisation is not None
    assert found[0] == pytest.approx(kpis.time_per_token_s)
    assert found[1] == pytest.approx(kpis.usd_per_token, rel=1e-3)
    assert -found[2] == pytest.approx(kpis.utilisation, rel=1e-6)


def test_no_plan_of_a_small_space_lies_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = toy_setup(2, bps=4e9, latency_s=0.01, steps={(0, 1): [(200.0, 1e9)]})
    estimator, made = setup.estimator(), grid(setup.wan, [], 11.35)
    found = fixed_plan_front.outcomes(estimator, made)
    assert found is not None
    for plan in every_plan(estimator, 10**6):
        if len({(share.tp, share.pp) for share in plan.shares}) > 1:
            continue  # sizes are shared by the domains of an enumerated plan
        figures = fixed_plan_front.figures(estimator, made, plan)
        assert figures is None or pareto.coverage(found, np.array([figures]), tolerance=1e-9) == 1.0


def test_large_spaces_are_not_enumerated() -> None:
    setup = toy_setup(8)
    made = grid(setup.wan, [], 11.35)
    assert fixed_plan_front.outcomes(setup.estimator(), made) is None
