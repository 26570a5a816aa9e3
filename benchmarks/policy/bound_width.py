"""How much the clairvoyant bound rises over more candidates than `twin bench` gives it.

    nice python -m benchmarks.policy.bound_width --store .twin/results [--scenario NAME[@DATASET] ...]

Over more than 400 plans the bound is the best path over candidates (`policy/bound/bound.py`), so that a plan
no search found could beat it. Here searches go over ever more and shorter parts of the window, for the
typical links of each and for those with relays, and all that they find joins the candidates. What the bound
gains says how much it lacked at least. `moves free` is no bound: the same candidates when a move costs its
restart alone, so what lies between is the price of moving layers. The last line prices every plan of the
space against the path (`policy/bound/pricing.py`), as `twin bench` does with spaces of up to a million plans
and `twin bench --prove` with larger ones: those that could improve it join, and the ceiling is what no
sequence of plans exceeds. `hippo` and `mpc` say when decisions are and bring the plans that they used. CPU
seconds.
"""

import argparse
import time
from pathlib import Path

from benchmarks.policy.tune_mpc import run
from policy.baselines.mpc import Mpc
from policy.bound.bound import ANY, Bound, clairvoyant
from policy.bound.candidate_plans import CandidatePool, window_parts
from policy.bound.time_grid import grid
from policy.core.protocol import Context, Decision, Policy
from policy.hippo.agent.agent import HiPpo
from twin.core.plan import Plan
from twin.core.view import View
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, prepare

SCENARIOS = ("tri-7b@wanify-aws8", "quad-70b", "storm")
WIDTHS = ((0, 0), (24, 12), (96, 12), (192, 12))
"""Parts of the window that are searched beside, and plans taken from each search."""


class Watched:
    """A policy, when it was asked, and the plans that it used."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.times: list[int] = []
        self.plans: list[Plan] = []

    def reset(self, context: Context) -> None:
        """Start a run."""
        self._policy.reset(context)

    def decide(self, view: View) -> Decision:
        """What the policy decides."""
        decision = self._policy.decide(view)
        self.times.append(view.now_ns)
        self.plans += [] if decision.plan is None else [decision.plan]
        return decision


def widened(
    setup: PreparedScenario, parts: int, top: int, times: list[int], used: list[Plan]
) -> tuple[Bound, Bound]:
    """The bound with what searches over `parts` parts find beside the plans `used`; and with free moves."""
    estimator, restart_s = setup.estimator(), setup.scenario.moving.restart_s
    made = grid(setup.wan, times, restart_s)
    pool, stretched = CandidatePool(estimator, made), window_parts(made, parts) if parts else []
    found = [plan for first, last in stretched for plan in pool.around(first, last, top=top)]
    paid, free = (
        clairvoyant(
            estimator, setup.wan, times, restart_s=restart_s, copied_ahead=copied, priced=0,
            used_plans=list(dict.fromkeys([*used, *found])),
        )
        for copied in (False, True)
    )  # fmt: skip
    return paid, free


def main() -> None:
    """A line a width."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scenario", action="append")
    asked = parser.parse_args()
    for title in asked.scenario or SCENARIOS:
        name, _, dataset = title.partition("@")
        setup = prepare(scenarios.load(name), asked.store, window="test", dataset=dataset or None)
        watched = [Watched(Mpc()), Watched(HiPpo())]
        for policy in watched:
            run(setup, policy, setup.scenario.weights.vector)
        times = sorted({ns for policy in watched for ns in policy.times})
        used = list(dict.fromkeys(plan for policy in watched for plan in policy.plans))
        print(f"{title}\n   parts  plans of each  candidates     bound  moves free  seconds")
        least = 0.0
        for parts, top in WIDTHS:
            began = time.process_time()
            paid, free = widened(setup, parts, top, times, used)
            least = least or paid.iterations
            gain, freely = (100 * (bound.iterations / least - 1) for bound in (paid, free))
            seconds = time.process_time() - began
            row = f"{parts:>8}{top:>15}{paid.candidates:>12}{gain:>+8.2f} %{freely:>+10.2f} %{seconds:>9.0f}"
            print(row, flush=True)
        began = time.process_time()
        priced = clairvoyant(
            setup.estimator(), setup.wan, times, restart_s=setup.scenario.moving.restart_s, used_plans=used,
            priced=ANY,
        )  # fmt: skip
        seconds, gain = time.process_time() - began, 100 * (priced.iterations / least - 1)
        most = priced.ceiling_tokens and 100 * (priced.ceiling_tokens / priced.tokens - 1)
        proven = "nothing proven" if most is None else f"ceiling {most:.2f} % above that"
        print(f"  priced{priced.candidates:>27}{gain:>+8.2f} %  {proven:<24}{seconds:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
