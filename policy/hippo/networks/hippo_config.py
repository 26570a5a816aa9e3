"""Everything that can be set about Hi-PPO; the shipped values stand in `configs/algo/hi_ppo.yaml`."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ingest.core.config import Config, load
from ingest.core.resources import configs


class GnnConfig(Config):
    """Graph encoder over the complete graph of domains; "none": every domain by itself (an ablation)."""

    type: Literal["GraphSAGE", "GATv2", "none"] = "GraphSAGE"
    num_layers: Annotated[int, Field(ge=1, le=4)] = 2
    hidden_dim: Annotated[int, Field(ge=8, le=512)] = 64
    dense: bool = True  # the dense form of the same layers; False runs torch-geometric's scatter form


class PpoConfig(Config):
    """Proximal policy optimisation (Schulman et al. 2017) for both levels."""

    lr: Annotated[float, Field(gt=0)] = 3.0e-4
    gamma: Annotated[float, Field(ge=0, lt=1)] = 0.99
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    clip_range: Annotated[float, Field(gt=0)] = 0.2
    value_clip: Annotated[float, Field(gt=0)] = 0.2
    entropy_coef: Annotated[float, Field(ge=0)] = 0.01
    value_coef: Annotated[float, Field(ge=0)] = 0.5
    max_grad_norm: Annotated[float, Field(gt=0)] = 0.5
    target_kl: Annotated[float, Field(gt=0)] = 0.02
    num_steps: Annotated[int, Field(ge=8)] = 2048  # decisions a rollout, over all environments
    update_epochs: Annotated[int, Field(ge=1)] = 10
    minibatch_size: Annotated[int, Field(ge=1)] = 256


class LowerConfig(Config):
    """Agents inside the domains: reward -lambda1 fragmentation - lambda2 communication share."""

    lambda_fragmentation: Annotated[float, Field(ge=0)] = 0.5
    lambda_communication: Annotated[float, Field(ge=0)] = 1.0
    lr: Annotated[float, Field(gt=0)] = 1.0e-3


class PenaltyConfig(Config):
    """Soft constraints with learned multipliers; a multiplier rises while the mean of a rollout is above its
    limit, and falls while it is below.

    The limit of weak links is above what no plan can avoid: in the weather of practice an outage has either
    direction of any link 6 % of the time in one of three conditions, 2 % over all (`policy.hippo.footage`).

    The design's fourth, coordination over 2 s, depends on the machine and not on an action: it has a deadline
    with a fallback in the runner instead of a multiplier.
    """

    weak_link_bps: Annotated[float, Field(gt=0)] = 1.0e8
    weak_link_limit: Annotated[float, Field(ge=0)] = 0.05  # of the boundaries between domains
    imbalance_delta: Annotated[float, Field(ge=0)] = 0.5  # busiest stage less the idlest, over the mean
    interruption_limit: Annotated[float, Field(ge=0)] = 0.01  # of the time
    multiplier_lr: Annotated[float, Field(ge=0)] = 0.05
    multiplier_max: Annotated[float, Field(ge=0)] = 10.0

    @property
    def limits(self) -> dict[str, float]:
        """The limit of each constraint by its name in `policy.hippo.env.CONSTRAINTS`."""
        return {
            "weak_link": self.weak_link_limit,
            "imbalance": self.imbalance_delta,
            "interruption": self.interruption_limit,
        }


class RolloutConfig(Config):
    """The twins that the agent practises in."""

    environments: Annotated[int, Field(ge=1)] = 32  # twins of one cluster stepped together
    episode_steps: Annotated[int, Field(ge=2)] = 32  # decisions until a twin is cut off (truncated)
    samples_per_period: Annotated[int, Field(ge=1)] = 3  # link states that one period is integrated over
    weights: tuple[float, float, float] | None = None  # None: drawn from a Dirichlet distribution
    dirichlet: tuple[float, float, float] = (4.0, 1.0, 1.0)
    random_clusters: Annotated[int, Field(ge=0)] = 0  # made-up clusters beside the given scenario


class ImitationConfig(Config):
    """Warm start: follow the planner's decisions before learning from reward."""

    lessons: Annotated[int, Field(ge=0)] = 60  # decisions of `mpc` on the scenario
    searched: Annotated[int, Field(ge=0)] = (
        600  # decisions of the agent's own verified search, over all clusters
    )
    entropy_coef: Annotated[float, Field(ge=0)] = 0.02
    steps: Annotated[int, Field(ge=0)] = 400
    lr: Annotated[float, Field(gt=0)] = 1.0e-3
    batch: Annotated[int, Field(ge=1)] = 64
    # Logged decisions are weighted by exp(advantage / beta); 0: all alike.
    beta: Annotated[float, Field(ge=0)] = 0.1


class DistributedConfig(Config):
    """Several learners that share gradients (DD-PPO, Wijmans et al. 2020)."""

    # Share of the learners whose rollouts are complete when the others stop theirs. Below 1, who stops where
    # depends on the machines, and equal seeds no longer give equal weights.
    preempt: Annotated[float, Field(gt=0, le=1)] = 1.0
    least: Annotated[float, Field(gt=0, le=1)] = 0.25  # of a rollout that a learner takes in any case


class PartsConfig(Config):
    """Parts of the method that can be left out, to see what they are worth (`benchmarks/ablation.py`).

    Others have switches of their own: the graph network (`gnn.type`), the warm start (`imitation.steps`),
    weights as an input (`rollout.weights`), verification (`coordinator.verify`).
    """

    forecast: bool = True  # False: links are expected to stay as they are, with certainty
    hierarchy: bool = True  # False: one agent; the upper one's reward teaches inner configurations, too
    masks: bool = True  # False: plans are drawn freely, and an illegal one is read as the nearest legal one
    hold: bool = True  # False: a plan is chosen at every decision; to choose the running one costs nothing


class CoordinatorConfig(Config):
    """How the network's plan becomes a decision."""

    verify: bool = True  # score several proposals in the twin; False: the network's own choice stands
    search: bool = True  # score what the planners' search finds beside them
    proposals: Annotated[int, Field(ge=1)] = 8  # one greedy decode, the rest samples; none between events
    rounds: Annotated[int, Field(ge=0)] = 1  # of local refinement at a periodic trigger
    wide_rounds: Annotated[int, Field(ge=0)] = 8  # at any other trigger, until nothing improves
    horizon_s: Annotated[float, Field(gt=0)] = 7200.0  # over which a move must pay
    margin: Annotated[float, Field(ge=0)] = 0.02  # relative gain that a move must promise beyond its cost


class HiPpoConfig(Config):
    """All settings of one agent; a checkpoint carries them."""

    gnn: GnnConfig = GnnConfig()
    ppo: PpoConfig = PpoConfig()
    lower: LowerConfig = LowerConfig()
    penalties: PenaltyConfig = PenaltyConfig()
    rollout: RolloutConfig = RolloutConfig()
    parts: PartsConfig = PartsConfig()
    imitation: ImitationConfig = ImitationConfig()
    distributed: DistributedConfig = DistributedConfig()
    coordinator: CoordinatorConfig = CoordinatorConfig()
    iterations: Annotated[int, Field(ge=0)] = 30  # PPO updates of the upper agent
    evaluate_every: Annotated[int, Field(ge=1)] = 5  # iterations between validations
    seed: Annotated[int, Field(ge=0)] = 0

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of all values."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Variants(Config):
    """The file `hi_ppo.yaml`: the design document's values and the tuned ones, side by side."""

    design: HiPpoConfig
    tuned: HiPpoConfig
    shipped: HiPpoConfig
    toy: HiPpoConfig


def shipped(
    variant: Literal["design", "tuned", "shipped", "toy"] = "tuned", path: Path | None = None
) -> HiPpoConfig:
    """One variant of `hi_ppo.yaml` (the shipped file unless `path` names another).

    Raises:
        UsageError: the file does not fit; the message names file and line.
    """
    variants = load(Variants, path or configs("algo") / "hi_ppo.yaml")
    chosen: HiPpoConfig = getattr(variants, variant)
    return chosen


def changed(config: HiPpoConfig, path: Path) -> HiPpoConfig:
    """The configuration with the values of a YAML file of the same form in place of its own; what the file
    does not name stays.

    Raises:
        UsageError: the file does not fit; the message names file and line.
    """
    given = load(HiPpoConfig, path).model_dump(exclude_unset=True)
    return HiPpoConfig.model_validate(_merged(config.model_dump(), given))


def _merged(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `given`, level by level."""
    inner = {
        key: _merged(base[key], value) if isinstance(value, dict) and isinstance(base[key], dict) else value
        for key, value in given.items()
    }
    return base | inner
