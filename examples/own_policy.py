"""A policy of one's own in forty lines, compared with `mpc` and the clairvoyant bound.

python examples/own_policy.py
"""

import sys

import twin
from policy.search.plan_search import best_plans


class Cautious:
    """The fastest plan for links that are as slow as one time in ten; moves only for a gain of 10 %."""

    name = "cautious"
    gain = 0.10

    def reset(self, context: twin.Context) -> None:
        """Start a run with the cost models of its cluster and job."""
        self.estimator = context.estimator

    def decide(self, view: twin.View) -> twin.Decision:
        """The plan to run now; the view holds the past only."""
        forecast = view.forecast
        links = twin.LinkState(forecast.quantile(0.1)[0], forecast.latency_s)
        ranked = best_plans(self.estimator, links, free_gpus=view.free_gpus, slowdown=view.slowdown, top=1)
        if not ranked:
            return twin.Decision(None, "no plan runs on the GPUs and links that are left")
        plan, best_ns = ranked[0]
        if view.plan is None:
            return twin.Decision(plan, "fastest plan for slow links")
        now_ns = self.estimator.iter_ns(view.plan, links, view.slowdown)
        if best_ns > (1 - self.gain) * now_ns:
            return twin.Decision(None, f"no plan is {self.gain:.0%} faster")
        return twin.Decision(plan, f"{1 - best_ns / now_ns:.0%} faster", predicted_iter_s=best_ns / 1e9)


def main() -> None:
    """Compare on the synthetic links that ship, or in the store given as the first argument."""
    store = twin.Store(sys.argv[1] if len(sys.argv) > 1 else None)
    if "synthetic-tri" not in store.datasets():
        store.ingest()
    result = twin.compare(["static", "mpc", Cautious], "tri-7b", store=store)
    print(f"{result.scenario} on {result.dataset} (SYNTHETIC links), {result.wall_s / 3600:.1f} h")
    for row in result.rows:
        assert row.kpis is not None and row.kpis.time_per_token_s is not None, row.problem
        print(f"{row.policy:10} {row.kpis.time_per_token_s * 1e6:8.2f} us/token  regret {row.regret:.1%}")


if __name__ == "__main__":
    main()
