"""`kept` follows the plan that it was given, and refuses one that does not fit."""

from dataclasses import replace

import pytest

from ingest.core.errors import InfeasibleError
from policy.baselines.kept import Kept
from policy.control.knobs import default_knobs
from policy.core.protocol import Context
from policy.core.reference_plan import equal_cuts
from tests.support.three_sites import estimator, view
from twin.core.seeds import generator


def context(made) -> Context:
    return Context(made, 60.0, 11.35, (1.0, 0.0, 0.0), generator(0, "kept"))


def test_the_given_plan_is_taken_and_held() -> None:
    made = estimator()
    plan = equal_cuts(made, [2, 0], [4, 4, 4])
    policy = Kept(plan)
    policy.reset(context(made))
    first = policy.decide(view(made, trigger="start")).plan
    assert first is not None and default_knobs(made.job, first) == plan
    assert policy.decide(view(made, plan=first)).plan is None


def test_lost_gpus_are_waited_for() -> None:
    made = estimator()
    policy = Kept(equal_cuts(made, [0, 1], [4, 4, 4]))
    policy.reset(context(made))
    decision = policy.decide(view(made, plan=policy.plan, free=(0, 4, 4)))
    assert decision.plan is None and "waited for" in decision.reason


def test_a_plan_of_another_model_is_refused() -> None:
    plan = equal_cuts(estimator(), [0, 1], [4, 4, 4])
    for wrong in (estimator(blocks=6), estimator(gpus=2)):
        with pytest.raises(InfeasibleError, match="the plan does not fit"):
            Kept(replace(plan)).reset(context(wrong))
