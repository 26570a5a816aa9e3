"""From how many GPUs a domain on do links matter: the same job and links, domains of several sizes.

    nice python -m benchmarks.policy.domain_sizes --store .twin/results [--scenario quad-70b] [--gpus
    8,16,32,64]

Test windows, seed 0. A boundary takes as long to cross as a domain computes between two of them at

    n = 36 h (N / S) B / F    GPUs a domain

(72 h^2 (N / S) FLOPs a token and domain against 2 h bytes a direction), with hidden size h, N blocks over S
domains, B the median over links and time in bytes a second, F the FLOP/s that a GPU reaches on the blocks,
recompute counted as lost. `links / compute` is size / n: far below 1 the sites add up, far above it one alone
is fastest. Times per token in microseconds; `of capacity`: tokens of the last policy named as a share of what
all GPUs would train that always compute (`policy/bound/capacity.py`).
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.policy.tune_mpc import run
from ingest.core.errors import InfeasibleError
from ingest.core.units import BITS_PER_BYTE
from policy.bound import capacity
from policy.core.registry import create
from policy.hippo.agent.agent import shipped_checkpoint
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario, Scenario, load, prepare

POLICIES = ("single", "static", "greedy", "mpc", "hippo")


def sized(scenario: Scenario, gpus: int) -> Scenario:
    """The same scenario with so many GPUs in every domain."""
    domains = tuple(domain.model_copy(update={"gpus": gpus}) for domain in scenario.cluster.domains)
    cluster = scenario.cluster.model_copy(update={"domains": domains})
    return scenario.model_copy(update={"cluster": cluster})


def balanced(setup: PreparedScenario, most: float) -> float:
    """GPUs a domain at which a boundary takes as long as a domain computes, of all `most` tokens/s."""
    model, size = setup.job.model, setup.cluster.size
    apart = ~np.eye(size, dtype=bool)
    times = np.linspace(0, setup.wan.end_ns, 200, endpoint=False).astype(int).tolist()
    bits = np.median([setup.wan.at(t).bandwidth_bps[apart] for t in times])
    gpus = sum(domain.gpus for domain in setup.cluster.domains)
    flops_s = most * model.flops_per_sequence / model.seq / gpus
    return float(36 * model.hidden * (model.blocks / size) * bits / BITS_PER_BYTE / flops_s)


def us_per_token(setup: PreparedScenario, name: str) -> float | None:
    """What a policy needs over the window; None where the model does not fit for it."""
    try:
        policy = create(name, checkpoint=shipped_checkpoint())
        done = run(setup, policy, setup.scenario.weights.vector)
    except InfeasibleError:
        return None
    return 1e6 * done.iter_s / setup.job.tokens_per_iteration


def main() -> None:
    """A line a size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scenario", default="quad-70b")
    parser.add_argument("--gpus", default="8,16,32,64")
    parser.add_argument("--policies", default=",".join(POLICIES))
    asked = parser.parse_args()
    policies = asked.policies.split(",")
    named = " ".join(f"{name:>8}" for name in policies)
    print(f"{'GPUs a domain':>13} {'links / compute':>15} {named} {'of capacity':>12}", flush=True)
    for gpus in map(int, asked.gpus.split(",")):
        setup = prepare(sized(load(asked.scenario), gpus), asked.store, window="test")
        most = capacity.tokens_per_s(Estimator(setup.cluster, setup.job))
        found = [us_per_token(setup, name) for name in policies]
        cells = " ".join("       -" if us is None else f"{us:8.1f}" for us in found)
        share = "-" if not found[-1] else f"{100 * 1e6 / found[-1] / most:.0f} %"
        print(f"{gpus:>13} {gpus / balanced(setup, most):>15.2f} {cells} {share:>12}", flush=True)


if __name__ == "__main__":
    main()
