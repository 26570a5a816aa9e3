"""A cluster and job to train on: tables, traces and the static plan of a `PreparedScenario` or a random
cluster."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from ingest.core.units import to_ns
from policy.control.relay_links import RelayPaths, message_bits
from policy.core.protocol import Context
from policy.core.reference_plan import equal_cuts
from policy.hippo.env.practice_trace import CONDITIONS, PracticeTracePair, prepare_trace
from policy.hippo.env.vector_env import BatchedTwins
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.tables.features import Features
from policy.hippo.tables.planning_tables import Codes, PlanningTables
from twin.core.link_history import LinkHistory
from twin.core.seeds import generator
from twin.costs.collectives import Path, all_reduce_s
from twin.filters import long_run
from twin.filters.link_filter import LinkParameters
from twin.filters.ou_process import OuParameters
from twin.scenario.prepare import PreparedScenario, Scenario, assemble, telemetry_model
from twin.settings.disturbances import Noise
from twin.traces.perturbation import ou_factor
from twin.traces.wan_trace import LinkSeries, WanTrace, trace

VALIDATION_SHARE = 0.2
"""Last part of the training window, held out for selection without a validation window."""

VALIDATION_SEED = 2**40
"""Seed of noise and conditions in validation, whatever that of training, or scores would not compare."""


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """One cluster and job, with the traces of training and validation."""

    setup: PreparedScenario
    features: Features
    base: Codes
    training: PracticeTracePair
    validation: PracticeTracePair
    lower_reward: NDArray[np.float64]  # (C, Z, Q)
    history: LinkHistory | None = None  # of the whole training window, which teachers know

    @property
    def problem(self) -> PlanningTables:
        """Tables of the cluster."""
        return self.features.problem

    def context(self, weights: tuple[float, float, float], rng: np.random.Generator) -> Context:
        """Returns the context of a policy on this cluster."""
        period_s = self.setup.scenario.control.period_s
        return Context(self.problem.estimator, period_s, self.features.restart_s, weights, rng, self.history)

    def twins(self, config: HiPpoConfig, *, validate: bool = False) -> BatchedTwins:
        """Returns the twins; with `validate` over the validation traces under the scenario's weights."""
        control, weights = self.setup.scenario.control, self.setup.scenario.weights.vector
        rollout = config.rollout
        if validate:
            rollout = rollout.model_copy(update={"weights": weights})
        return BatchedTwins(
            self.features,
            self.validation if validate else self.training,
            self.base,
            rollout=rollout,
            penalties=config.penalties,
            period_s=control.period_s,
            restart_s=self.setup.scenario.moving.restart_s,
            weights=weights,
            hold=config.parts.hold,
        )


def prepare_task(
    setup: PreparedScenario, config: HiPpoConfig, validation: PreparedScenario | None = None
) -> TrainingTask:
    """Returns the task of a training window; `validation` is another window of the same scenario.

    Raises:
        InfeasibleError: the model does not fit, or not with the static plan, which rewards are relative to.
    """
    scenario = setup.scenario
    estimator = setup.estimator()
    problem = PlanningTables(estimator)
    base = problem.encode(equal_cuts(estimator, range(problem.k), problem.free))
    if base is None:
        raise InfeasibleError(f"{scenario.name}: the static plan is not among the choices of training")
    history = long_run.before(setup.wan, setup.wan.end_ns, telemetry_model(setup.scenario))
    shown = history if config.parts.history else None
    features = Features(problem, scenario.moving.restart_s, scenario.control.period_s, shown)
    samples = config.rollout.samples_per_period
    conditions = CONDITIONS if config.parts.perturbation else CONDITIONS[:1]
    relays = RelayPaths(problem.estimator.cluster, message_bits(problem.estimator.job, problem.plan(base, 0)))
    # Validation has the conditions of training, since weights for all are a compromise between them.
    training, held_out = (
        PracticeTracePair(one, one.relayed(relays))
        for one in (
            prepare_trace(setup, samples, seed=config.seed, conditions=conditions),
            prepare_trace(validation or setup, samples, seed=VALIDATION_SEED, conditions=conditions),
        )
    )
    if not config.parts.forecast:
        training, held_out = training.without_forecast(), held_out.without_forecast()
    if validation is None:
        training, held_out = training.split(1 - VALIDATION_SHARE)[0], held_out.split(1 - VALIDATION_SHARE)[1]
    return TrainingTask(setup, features, base, training, held_out, lower_rewards(problem, config), history)


def lower_rewards(problem: PlanningTables, config: HiPpoConfig) -> NDArray[np.float64]:
    """Returns -lambda1 fragmentation - lambda2 T_comm_intra of every inner configuration, (C, Z, Q).

    Fragmentation: the domain's share of idle GPU time, by unused GPUs and while the share's stages fill and
    drain (without the latter more stages would always be better). T_comm_intra: tensor-parallel all-reduces
    of a block and boundaries between the share's stages, relative to the stage's forward time.
    """
    t, job = problem.tables, problem.estimator.job
    result = np.zeros(t.pp.shape)
    for c, knob in enumerate(problem.knobs):
        message = float(job.message_bytes(knob.micro_batch))
        for k in range(problem.k):
            z, y, domain = problem.class_of[k], problem.kind_of[k], problem.estimator.cluster.domains[k]
            for q, (tp, pp) in enumerate(problem.choices[c][z]):
                reduce_s = 2 * all_reduce_s(
                    message, tp, Path(domain.intra_node_bps, domain.intra_node_latency_s)
                )
                blocks = problem.n - 2
                forward = float(t.forward[c, y, q, -1])
                inner = (
                    float((t.inner_occupancy_ns[c, y, q] + t.inner_latency_ns[c, y, q])[: pp - 1].sum()) / 1e9
                )
                share = (reduce_s * blocks + inner) / forward
                filled = knob.micro_batches / (knob.micro_batches + pp - 1)
                idle = 1 - knob.dp * tp * pp / problem.free[k] * filled
                result[c, z, q] = (
                    -config.lower.lambda_fragmentation * idle - config.lower.lambda_communication * share
                )
    return result


# -- random clusters

MODELS = (("llama2-7b", 32, 4), ("llama2-13b", 64, 8), ("llama2-70b", 128, 16), ("llama2-70b", 256, 16))
"""(model, global batch, GPUs of a domain) of random clusters."""


def random_task(seed: int, number: int) -> PreparedScenario:
    """Returns random cluster `number`: 2 to 8 domains, links of 0.3-8 Gb/s and 5-150 ms with noise and
    changes of level.
    """
    rng = generator(seed, f"invented-{number}")
    size = int(rng.integers(2, 9))
    model, batch, gpus = MODELS[int(rng.integers(len(MODELS)))]
    counts = [gpus * int(rng.choice([1, 1, 1, 2])) for _ in range(size)]
    period = float(rng.choice([60, 120, 300]))
    scenario = Scenario.model_validate(
        {
            "name": f"invented-{number}",
            "model": model,
            "job": {"global_batch": batch, "micro_batches": [1, 2], "zero": 1},
            "cluster": {
                "hardware": {
                    "gpu": "a100-80",
                    "gpus_per_node": min(8, gpus),
                    "intra_node_bps": 2.4e12,
                    "inter_node_bps": 2e11,
                    "intra_node_latency_s": 3e-6,
                    "inter_node_latency_s": 8e-6,
                    "usd_per_gpu_hour": 5.0,
                },
                "domains": [{"name": f"d{k}", "gpus": n} for k, n in enumerate(counts)],
                "usd_per_gb": {
                    "default": 0.02,
                    "sources": {f"d{k}": float(rng.choice([0.02, 0.05, 0.09, 0.14])) for k in range(size)},
                },
            },
            "wan": {"dataset": "invented", "streams": 1, "cap_bps": 1e11, "default_rtt_s": 0.1},
            "control": {"period_s": period, "horizons_s": [0, 60, 120, 300, 600, 1800]},
        }
    )
    wan, filters = random_links(rng, size, 200 * period)
    return assemble(scenario, wan, window="all", seed=seed, filters=filters)


def random_links(rng: np.random.Generator, size: int, seconds: float) -> tuple[WanTrace, LinkParameters]:
    """Links between random points: slower with distance, Ornstein-Uhlenbeck noise, a few lasting changes of
    level."""
    place = rng.uniform(0, 1, (size, 2))
    rich = np.exp(rng.normal(0, 0.3, size))
    tau, sd = float(np.exp(rng.uniform(np.log(120), np.log(3600)))), float(rng.uniform(0.03, 0.25))
    level = float(np.exp(rng.uniform(np.log(0.6e9), np.log(5e9))))
    end_ns, series, mu, late = to_ns(seconds), {}, [], []
    for i in range(size):
        for j in range(size):
            if i == j:
                continue
            distance = float(np.hypot(*(place[i] - place[j]))) + 0.03
            bps = float(
                np.clip(
                    level * np.sqrt(rich[i] * rich[j]) / np.sqrt(distance / 0.4) * np.exp(rng.normal(0, 0.2)),
                    2e8,
                    1e10,
                )
            )
            times, factor = ou_factor(Noise(clip=0.9, sd=sd, tau_s=tau, step_s=60), end_ns, rng)
            for at in rng.uniform(0, seconds, rng.poisson(0.3)):
                factor = np.where(
                    times >= to_ns(float(at)), factor * float(rng.choice([0.3, 0.5, 2.0])), factor
                )
            latency = 0.003 + 0.1 * distance
            values = np.maximum(bps * factor, 1e6)
            series[i, j] = LinkSeries(times, values, np.full(len(times), latency))
            mu.append(np.log(bps))
            late.append(np.log(latency))
    names = tuple(f"d{k}" for k in range(size))
    filters = LinkParameters(
        OuParameters.of(np.array(mu), tau_s=tau, sd=max(sd, 0.02), r=1e-4),
        OuParameters.of(np.array(late), tau_s=600, sd=0.05, r=1e-4),
    )
    return trace(names, series, end_ns), filters
