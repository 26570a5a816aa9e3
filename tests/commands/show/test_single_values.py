"""What one value, or a bound that is none, cannot say is not printed."""

from typing import Any, cast

import numpy as np
import pytest

from commands.show import bench_table, queue, runs
from policy.bound.bound import Bound
from replay.logqueue.windowed import Ranged
from replay.metrics.paired_comparison import PairedDifference, bootstrap, student
from replay.report.kpi_table import spread

ONE = student("reduction", np.array([0.4]))
SEVERAL = student("reduction", np.array([0.4, 0.5, 0.45]))


def as_json(found: PairedDifference) -> dict[str, Any]:
    return {"mean": found.mean, "low": found.low, "high": found.high}


def test_of_one_value_no_interval_is_printed() -> None:
    middle = bootstrap("reduction", np.array([0.4]), 0, lambda values: values.mean(axis=-1))
    assert not ONE.estimated and not middle.estimated and SEVERAL.estimated
    assert bench_table.interval(as_json(ONE)) == "-" and bench_table.whole(as_json(middle)) == "+40.0 %"
    assert bench_table.interval(as_json(SEVERAL)).startswith("[+")
    assert runs._spread(ONE, 100, " %") == "+40.00 %" and "[" in runs._spread(SEVERAL, 100, " %")
    assert queue._interval(Ranged(1.0, 1.0, 1.0)) == "" and queue._interval(Ranged(1.0, 0.9, 1.1))
    assert spread(ONE, 100.0) == "–" and " … " in spread(SEVERAL, 100.0)


def bound(tokens: float) -> Bound:
    plan = cast(Any, None)
    return Bound(tokens, 1.0, tokens, plan, tokens, plan, (), 1, 1, False, False, 0.0, 0.5, tokens, None, 1.0)


@pytest.mark.parametrize(
    ("trained", "regret"), [(75.0, 0.25), (100.0, 0.0), (100.0 * (1 + 1e-12), 0.0), (101.0, None)]
)
def test_what_a_run_passed_bounds_nothing_and_gives_no_negative_regret(
    trained: float, regret: float | None
) -> None:
    for local_sgd in (False, True):
        assert bound(100.0).regret(trained, local_sgd=local_sgd) == regret
    assert bound(0.0).regret(trained, local_sgd=False) is None
