"""Settings of Hi-PPO; the shipped values are in `configs/algo/hi_ppo.yaml`."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from ingest.core.config import Config, load
from ingest.core.ranges import SEED_LIMIT, Within
from ingest.core.resources import configs

_WHY = "more has no meaning, or takes longer than anybody waits"
Positive = Annotated[float, Within(0, 1e12, _WHY, above=True)]
NotNegative = Annotated[float, Within(0, 1e12, _WHY)]
Fraction = Annotated[float, Within(0, 1, "a share")]
PositiveFraction = Annotated[float, Within(0, 1, "a share", above=True)]
Discount = Annotated[float, Within(0, 0.999999, "below 1, or nothing is ever over")]
Count = Annotated[int, Within(1, 10_000_000, _WHY)]
Steps = Annotated[int, Within(8, 10_000_000, _WHY)]
CountOrNone = Annotated[int, Within(0, 10_000_000, _WHY)]


class GnnConfig(Config):
    """Graph encoder over the complete graph of domains; "none": without messages (an ablation)."""

    type: Literal["GraphSAGE", "GATv2", "none"] = "GraphSAGE"
    num_layers: Annotated[int, Within(1, 4, "deeper ones smooth all differences out")] = 2
    hidden_dim: Annotated[int, Within(8, 512, "wider ones decide too slowly")] = 64
    dense: bool = True  # the dense form of the same layers; False runs torch-geometric's scatter form


class PpoConfig(Config):
    """Proximal policy optimisation (Schulman et al. 2017) for both levels."""

    lr: Positive = 3.0e-4
    gamma: Discount = 0.99
    gae_lambda: Fraction = 0.95
    clip_range: Positive = 0.2
    value_clip: Positive = 0.2
    entropy_coef: NotNegative = 0.01
    value_coef: NotNegative = 0.5
    max_grad_norm: Positive = 0.5
    target_kl: Positive = 0.02
    num_steps: Annotated[int, Within(8, 10_000_000, _WHY)] = (
        2048  # decisions a rollout, over all environments
    )
    update_epochs: Count = 10
    minibatch_size: Count = 256
    # Periods over which a decision's plan is judged (`policy.hippo.training.kept_plans`); 0: by episodes.
    kept_periods: Annotated[int, Within(0, 2000, "no trace of training has more")] = 0


class LowerConfig(Config):
    """Lower agents; reward -lambda1 fragmentation - lambda2 communication share."""

    lambda_fragmentation: NotNegative = 0.5
    lambda_communication: NotNegative = 1.0
    lr: Positive = 1.0e-3


class PenaltyConfig(Config):
    """Soft constraints with learned multipliers, raised while a rollout's mean is above its limit, else
    lowered.

    The limit of weak links is above the share that no plan can avoid: one of three training conditions has
    outages of a link 6 % of the time, 2 % over all three (`policy.hippo.env.practice_trace`). Imbalance has
    no limit unless one is set: what it costs is in the time of an iteration already, and the fastest plans
    are uneven where domains or links differ (1.0 to 1.9 on quad-70b), so that a limit ranks them behind slow
    ones (`benchmarks/policy/environment_truth.py`).
    """

    weak_link_bps: Positive = 1.0e8
    weak_link_limit: NotNegative = 0.05  # share of the traffic between domains
    imbalance_delta: NotNegative | None = None  # (busiest stage - idlest stage) / mean stage; None: no limit
    interruption_limit: NotNegative = 0.01  # share of the time
    multiplier_lr: NotNegative = 0.05
    multiplier_max: NotNegative = 10.0

    @property
    def limits(self) -> dict[str, float]:
        """Limit of each constraint by its name in `policy.hippo.env.vector_env.CONSTRAINTS`; infinite where
        there is none."""
        return {
            "weak_link": self.weak_link_limit,
            "imbalance": np.inf if self.imbalance_delta is None else self.imbalance_delta,
            "interruption": self.interruption_limit,
        }


class RolloutConfig(Config):
    """The twins in which the agent is trained."""

    environments: Annotated[int, Within(1, 100_000, _WHY)] = 32  # twins of one cluster stepped together
    episode_steps: Annotated[int, Within(2, 10_000_000, _WHY)] = 32  # decisions until truncation
    samples_per_period: Count = 3  # link states sampled in one period
    weights: tuple[Fraction, Fraction, Fraction] | None = None  # None: drawn from a Dirichlet distribution
    dirichlet: tuple[Positive, Positive, Positive] = (4.0, 1.0, 1.0)
    random_clusters: CountOrNone = 0  # random clusters beside the given scenario


class ImitationConfig(Config):
    """Warm start: imitation of planners before learning from reward."""

    # Demonstrations of `mpc` on the scenario; named `lessons` in stored configurations.
    lessons: CountOrNone = 60
    searched: CountOrNone = 600  # of the agent's verified search, over all clusters
    past: CountOrNone = 0  # of the best plan of the scenario's own past, kept; cheap
    entropy_coef: NotNegative = 0.02
    steps: CountOrNone = 400
    lr: Positive = 1.0e-3
    batch: Count = 64
    # Logged decisions are weighted by exp(advantage / beta); 0: all equally.
    beta: NotNegative = 0.1


class DistributedConfig(Config):
    """Several learners that share gradients (DD-PPO, Wijmans et al. 2020)."""

    # Share of learners with complete rollouts at which the others stop theirs. Below 1 equal seeds no longer
    # give equal weights: where a learner stops depends on the machines.
    preempt: PositiveFraction = 1.0
    least: PositiveFraction = 0.25  # least share of a rollout that each learner collects


class PartsConfig(Config):
    """Parts of the method that an ablation switches off (`benchmarks/hippo/ablation.py`).

    Other switches: the graph network (`gnn.type`), the warm start (`imitation.steps`), weights as an input
    (`rollout.weights`), verification (`coordinator.verify`).
    """

    forecast: bool = True  # False: the present links are the forecast, without variance
    hierarchy: bool = True  # False: one agent, both levels learn from the upper reward
    masks: bool = True  # False: plans are sampled freely, illegal ones replaced by the nearest legal one
    hold: bool = True  # False: a plan at every decision; choosing the running one is free
    history: bool = True  # False: the network sees nothing of the past but the forecast's mean
    perturbation: bool = True  # False: trained and selected on the links as measured alone


class CoordinatorConfig(Config):
    """Verification and refinement of the network's plans at a decision."""

    verify: bool = True  # score several proposals; False: take the network's own choice
    search: bool = True  # score the plans of the planners' search, too
    proposals: Count = 8  # one greedy, the rest sampled; none between events
    rounds: CountOrNone = 1  # of local refinement at a periodic trigger
    wide_rounds: CountOrNone = 8  # at any other trigger, until nothing improves
    horizon_s: Positive = 7200.0  # over which a move must pay off
    margin: NotNegative = 0.01  # least relative gain of a move beyond its cost


class HiPpoConfig(Config):
    """All settings of one agent; part of its checkpoint."""

    gnn: GnnConfig = GnnConfig()
    ppo: PpoConfig = PpoConfig()
    lower: LowerConfig = LowerConfig()
    penalties: PenaltyConfig = PenaltyConfig()
    rollout: RolloutConfig = RolloutConfig()
    parts: PartsConfig = PartsConfig()
    imitation: ImitationConfig = ImitationConfig()
    distributed: DistributedConfig = DistributedConfig()
    coordinator: CoordinatorConfig = CoordinatorConfig()
    iterations: CountOrNone = 30  # PPO updates of the upper agent
    evaluate_every: Count = 5  # iterations between validations
    seed: Annotated[int, Within(0, SEED_LIMIT - 1, "as seeds of scenarios")] = 0

    def digest(self) -> str:
        """Returns the SHA-256 (hex) of the canonical JSON of all values."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Variants(Config):
    """The sections of `hi_ppo.yaml`."""

    design: HiPpoConfig
    tuned: HiPpoConfig
    own: HiPpoConfig
    shipped: HiPpoConfig
    toy: HiPpoConfig


def shipped(
    variant: Literal["design", "tuned", "own", "shipped", "toy"] = "tuned", path: Path | None = None
) -> HiPpoConfig:
    """Returns one section of `hi_ppo.yaml` (the shipped file unless `path` names another).

    Raises:
        UsageError: invalid file; the message names file and line.
    """
    variants = load(Variants, path or configs("algo") / "hi_ppo.yaml")
    chosen: HiPpoConfig = getattr(variants, variant)
    return chosen


def changed(config: HiPpoConfig, path: Path) -> HiPpoConfig:
    """Returns the configuration with the values that a YAML file of the same form names.

    Raises:
        UsageError: invalid file; the message names file and line.
    """
    given = load(HiPpoConfig, path).model_dump(exclude_unset=True)
    return HiPpoConfig.model_validate(_merged(config.model_dump(), given))


def _merged(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns `base` with the values of `given`, level by level."""
    inner = {
        key: _merged(base[key], value) if isinstance(value, dict) and isinstance(base[key], dict) else value
        for key, value in given.items()
    }
    return base | inner
