"""How much the late past should count in the choice of a first plan, by rolling starts within the past.

    nice python -m benchmarks.policy.past_half_life [--store .twin/results] [--scenario NAME ...]

The past is what a run over the test window knows at its start; the window itself is not read. The past is cut
at many moments. At each one the plan is taken whose mean rate, knobs turned, is best over what came before,
and it is held against the best of the same plans over the eighth, or the quarter, of the past that follows.
Printed is the mean of iterations lost, in per cent, for each half-life, a share of the whole past.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policy.control.long_run import LongRunRates, PastPlans, samples_of
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import prepare

Float = NDArray[np.float64]

ROOT = Path(__file__).parents[2]
SETS = (
    "tri-7b@wanify-aws8", "quad-70b", "geant-70b", "octo-175b", "tri-7b@synthetic-tri",
    "quad-70b@synthetic-quad",
)  # fmt: skip
"""storm has the past of quad-70b."""
HALF_LIVES = (np.inf, 1.0, 0.5, 0.25, 0.125, 0.0625)
AHEAD = (8, 4)
"""Parts of the past that follow a start."""
STATES, PLANS, STARTS, NEAR = 480, 70, 36, 0.95
"""Samples of the past, plans compared, starts, and the least share of the best mean rate of a plan."""


def rates_over_past(title: str, store: Path) -> Float:
    """Returns iterations per second of the past's best plans (P,) in its samples, oldest first (P, T)."""
    name, _, dataset = title.partition("@")
    setup = prepare(scenarios.load(name), store, window="test", dataset=dataset or None)
    estimator, history = setup.estimator(), setup.history
    assert history is not None
    known = PastPlans(estimator, history, half_life=None)
    plans = known.legal(tuple(domain.gpus for domain in estimator.cluster.domains), PLANS)
    rates = LongRunRates(estimator, samples_of(history, STATES))
    each = np.stack([rates.turned_in_each(plan)[1] for plan in plans])
    mean = each.mean(axis=1)
    near: Float = each[mean > NEAR * mean.max()]
    return near


def lost(each: Float, half_life: float, ahead: int) -> float:
    """Returns the mean share of iterations lost over the samples that follow each start."""
    total = each.shape[1]
    length, found = total // ahead, []
    for start in range(total // 4, total - length + 1, max(1, total // STARTS)):
        weight = 0.5 ** (np.arange(start, 0, -1) / total / half_life)
        after = each[:, start : start + length].mean(axis=1)
        found.append(1.0 - after[(each[:, :start] @ weight).argmax()] / after.max())
    return float(np.mean(found))


def main() -> None:
    """Prints a line for each set and length ahead."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, default=ROOT / ".twin" / "results")
    parser.add_argument("--scenario", action="append")
    given = parser.parse_args()
    print("iterations lost, per cent, by half-life:", *HALF_LIVES)
    for title in given.scenario or SETS:
        each = rates_over_past(title, given.store)
        for ahead in AHEAD:
            shares = (f"{100 * lost(each, half_life, ahead):5.2f}" for half_life in HALF_LIVES)
            print(f"{title:24} over 1/{ahead} of the past: ", *shares, flush=True)


if __name__ == "__main__":
    main()
