"""Everything that can be set about Hi-PPO; the shipped values stand in `configs/algo/hi_ppo.yaml`."""

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import Field

from ingest.config import Config, load
from ingest.resources import configs


class GnnConfig(Config):
    """Graph encoder over the complete graph of domains."""

    type: Literal["GraphSAGE", "GATv2"] = "GraphSAGE"
    num_layers: int = Field(2, ge=1, le=4)
    hidden_dim: int = Field(64, ge=8, le=512)
    dense: bool = True  # the dense form of the same layers; False runs torch-geometric's scatter form


class PpoConfig(Config):
    """Proximal policy optimisation (Schulman et al. 2017) for both levels."""

    lr: float = Field(3.0e-4, gt=0)
    gamma: float = Field(0.99, ge=0, lt=1)
    gae_lambda: float = Field(0.95, ge=0, le=1)
    clip_range: float = Field(0.2, gt=0)
    value_clip: float = Field(0.2, gt=0)
    entropy_coef: float = Field(0.01, ge=0)
    value_coef: float = Field(0.5, ge=0)
    max_grad_norm: float = Field(0.5, gt=0)
    target_kl: float = Field(0.02, gt=0)
    num_steps: int = Field(2048, ge=8)  # decisions a rollout, over all environments
    update_epochs: int = Field(10, ge=1)
    minibatch_size: int = Field(256, ge=1)


class LowerConfig(Config):
    """Agents inside the domains: reward -lambda1 fragmentation - lambda2 communication share."""

    lambda_fragmentation: float = Field(0.5, ge=0)
    lambda_communication: float = Field(1.0, ge=0)
    lr: float = Field(1.0e-3, gt=0)


class PenaltyConfig(Config):
    """Soft constraints with learned multipliers; a limit is the mean violation that costs nothing.

    The design's fourth, coordination over 2 s, depends on the machine and not on an action: it has a deadline
    with a fallback in the runner instead of a multiplier.
    """

    weak_link_bps: float = Field(1.0e8, gt=0)
    imbalance_delta: float = Field(0.5, ge=0)
    interruption_limit: float = Field(0.01, ge=0)
    multiplier_lr: float = Field(0.05, ge=0)
    multiplier_max: float = Field(10.0, ge=0)


class RolloutConfig(Config):
    """The twins that the agent practises in."""

    environments: int = Field(32, ge=1)  # twins of one cluster stepped together
    episode_steps: int = Field(32, ge=2)  # decisions until a twin is cut off (truncated)
    samples_per_period: int = Field(3, ge=1)  # link states that one period is integrated over
    weights: tuple[float, float, float] | None = None  # None: drawn from a Dirichlet distribution
    dirichlet: tuple[float, float, float] = (4.0, 1.0, 1.0)
    random_clusters: int = Field(0, ge=0)  # made-up clusters beside the given scenario


class ImitationConfig(Config):
    """Warm start: follow the planner's decisions before learning from reward."""

    lessons: int = Field(60, ge=0)  # decisions of `mpc` on the scenario
    searched: int = Field(600, ge=0)  # decisions of the agent's own verified search, over all clusters
    entropy_coef: float = Field(0.02, ge=0)
    steps: int = Field(400, ge=0)
    lr: float = Field(1.0e-3, gt=0)
    batch: int = Field(64, ge=1)


class CoordinatorConfig(Config):
    """How the network's plan becomes a decision."""

    verify: bool = True  # score several proposals in the twin; False: the network's own choice stands
    proposals: int = Field(8, ge=1)  # one greedy decode, the rest samples
    rounds: int = Field(2, ge=0)  # of local refinement of the best proposals
    elites: int = Field(8, ge=0)  # good plans of this run that are scored again
    horizon_s: float = Field(3600.0, gt=0)  # over which a move must pay
    margin: float = Field(0.01, ge=0)  # relative gain that a move must promise beyond its cost


class HiPpoConfig(Config):
    """All settings of one agent; a checkpoint carries them."""

    gnn: GnnConfig = GnnConfig()
    ppo: PpoConfig = PpoConfig()
    lower: LowerConfig = LowerConfig()
    penalties: PenaltyConfig = PenaltyConfig()
    rollout: RolloutConfig = RolloutConfig()
    imitation: ImitationConfig = ImitationConfig()
    coordinator: CoordinatorConfig = CoordinatorConfig()
    iterations: int = Field(30, ge=0)  # PPO updates of the upper agent
    evaluate_every: int = Field(5, ge=1)  # iterations between validations
    seed: int = Field(0, ge=0)

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of all values."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Variants(Config):
    """The file `hi_ppo.yaml`: the design document's values and the tuned ones, side by side."""

    design: HiPpoConfig
    tuned: HiPpoConfig
    toy: HiPpoConfig


def shipped(variant: Literal["design", "tuned", "toy"] = "tuned", path: Path | None = None) -> HiPpoConfig:
    """One variant of `hi_ppo.yaml` (the shipped file unless `path` names another).

    Raises:
        UsageError: the file does not fit; the message names file and line.
    """
    variants = load(Variants, path or configs("algo") / "hi_ppo.yaml")
    chosen: HiPpoConfig = getattr(variants, variant)
    return chosen
