"""Sampling of plans under the masks; `policy.hippo.decoding.log_probability` evaluates given plans."""

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy.hippo.decoding.autoregressive import decode, head_weights, sample_rows
from policy.hippo.decoding.step_heads import DecoderInput
from policy.hippo.networks.lower_agent import ChoiceLikelihood, LowerAgent, likelihood
from policy.hippo.networks.upper_agent import Encoded, UpperAgent
from policy.hippo.tables.features import choice_features
from policy.hippo.tables.masks import Masks
from policy.hippo.tables.observation import Observation
from policy.hippo.tables.planning_tables import Codes

GREEDY = -1.0
"""In place of a random number: take the most likely choice."""


class Choices(Protocol):
    """The part that decoding needs of `policy.hippo.tables.planning_tables.PlanningTables`."""

    masks: Masks

    @property
    def choice_table(self) -> NDArray[np.float32]:
        """Constant features of every inner configuration, (C, Z, Q, CHOICE - 4)."""
        ...


@dataclass(frozen=True, eq=False)
class Actions:
    """B actions. Steps run from the last share to the first; -1 pads. S is at most K."""

    go: Tensor  # (B,) 0 hold, 1 move
    knob: Tensor  # (B,)
    domain: Tensor  # (B, S)
    layers: Tensor  # (B, S)
    choice: Tensor  # (B, S)
    open: Tensor  # (B, S, K, N) bool, legal (domain, layers) of the step
    legal: Tensor  # (B, S, Q) bool, legal inner configurations of the step
    behind: Tensor  # (B, S) stages placed before the step

    def take(self, index: Tensor) -> "Actions":
        """Returns the actions `index` (R,)."""
        return Actions(*(getattr(self, field.name)[index] for field in fields(self)))

    def padded(self, steps: int) -> "Actions":
        """Returns the same actions padded to `steps` shares."""
        extra = steps - self.domain.shape[1]
        if extra <= 0:
            return self
        rows = len(self.go)

        def grown(tensor: Tensor, value: int) -> Tensor:
            return torch.cat([tensor, tensor.new_full((rows, extra, *tensor.shape[2:]), value)], dim=1)

        steps_ = [grown(self.domain, -1), grown(self.layers, 0), grown(self.choice, 0)]
        masks = [grown(self.open, 0), grown(self.legal, 0), grown(self.behind, 0)]
        return Actions(self.go, self.knob, *steps_, *masks)


def joined(parts: list[Actions]) -> Actions:
    """Concatenates batches."""
    steps = max(part.domain.shape[1] for part in parts)
    parts = [part.padded(steps) for part in parts]
    return Actions(*(torch.cat([getattr(p, field.name) for p in parts]) for field in fields(Actions)))


@dataclass(frozen=True, eq=False)
class Sampled:
    """B sampled actions and their log-probabilities under each level."""

    actions: Actions
    log_prob: NDArray[np.float64]  # (B,)
    lower_log_prob: NDArray[np.float64]  # (B,) sum over the shares


def sample(
    upper: UpperAgent,
    lower: LowerAgent,
    problem: Choices,
    observation: Observation,
    uniform: NDArray[np.float64],
    state: Encoded | None = None,
) -> Sampled:
    """Samples hold or move and a plan for each situation; no gradients.

    `uniform` (B, 2 + 3 K): numbers in [0, 1) or `GREEDY`, for go, knob and then domain, layers, (tp, pp) of
    each step. The plan is completed even where the action is hold, for comparison.
    """
    with torch.no_grad():  # not inference mode: learning uses the actions
        state = upper.encode(observation) if state is None else state
        go_logits = upper.go_logits(state, observation.may_hold).numpy()
        knob_logits = upper.knob_logits(state, observation.knobs, observation.knob_mask).numpy()
        first, second = np.ascontiguousarray(uniform[:, :2].T)
        go, go_log_prob = sample_rows(go_logits, first)
        knob, knob_log_prob = sample_rows(knob_logits, second)
        plans = decode(
            head_weights(upper, lower),
            decoder_input(upper, state, observation, knob),
            problem.masks.tables,
            problem.masks.space.pp,
            problem.choice_table,
            knob,
            uniform[:, 2:],
        )
    # Shares of a held plan were never carried out: they do not count.
    log_prob = go_log_prob + go * (knob_log_prob + plans.log_prob)
    parts = [torch.from_numpy(np.ascontiguousarray(part)) for part in plans[:6]]
    actions = Actions(torch.from_numpy(go), torch.from_numpy(knob), *parts)
    return Sampled(actions, log_prob, go * plans.lower_log_prob)


def decoder_input(
    upper: UpperAgent, state: Encoded, observation: Observation, knob: NDArray[np.int64]
) -> DecoderInput:
    """Returns the input of `decode` for B situations with their chosen knobs (B,)."""
    features = observation.knobs[torch.arange(len(knob)), torch.from_numpy(knob)]
    graph = upper.step_graph(state.graph) + upper.step_knob(features)
    running = (observation.begin, observation.end, observation.pace, observation.current)
    parts = (graph, state.edges, state.domain, state.last, state.layer, *running)
    return DecoderInput(*(np.ascontiguousarray(part.numpy()) for part in parts))


def inner_features(
    problem: Choices,
    knob: NDArray[np.int64],
    domain: NDArray[np.int64],
    layers: NDArray[np.int64],
    behind: NDArray[np.int64],
    current: NDArray[np.int64],
) -> Tensor:
    """Returns the lower agents' features of R shares, (R, Q, CHOICE); all arguments (R,)."""
    space = problem.masks.space
    at = knob, space.class_of[domain]
    return torch.from_numpy(
        choice_features(problem.choice_table[at], space.pp[at], layers, behind, current, space.n_layers)
    )


def evaluate_lower(
    lower: LowerAgent, problem: Choices, observation: Observation, actions: Actions, row: Tensor, step: Tensor
) -> tuple[ChoiceLikelihood, Tensor]:
    """Evaluates the lower agents' choices of the shares (row, step), each (R,); returns likelihoods and
    values."""
    domain = actions.domain[row, step]
    layers, behind = actions.layers[row, step], actions.behind[row, step]
    given = (actions.knob[row], domain, layers, behind, observation.current[row, domain])
    features = inner_features(problem, *(x.numpy() for x in given))
    logits, value = lower.logits(features, actions.legal[row, step])
    return likelihood(logits, actions.choice[row, step]), value


def prefixes(actions: Actions, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns layers left (B, S), domains used (B, S, K) and domain placed last (B, S) before each step."""
    taken = actions.layers
    left = taken.sum(1, keepdim=True) - taken.cumsum(1) + taken
    hot = torch.zeros((*actions.domain.shape, k), dtype=torch.bool)
    hot.scatter_(2, actions.domain.clamp(min=0).unsqueeze(-1), (actions.domain >= 0).unsqueeze(-1))
    used = (hot.long().cumsum(1) - hot.long()) > 0
    last = torch.cat([torch.full_like(actions.domain[:, :1], -1), actions.domain[:, :-1]], dim=1)
    return left, used, last


def forced_actions(masks: Masks, codes: Codes, go: NDArray[np.bool_]) -> Actions:
    """Returns the actions that produce the given plans, masks included; `go` (B,) is hold or move.

    Raises:
        ValueError: the masks do not allow a plan.
    """
    space, (batch, k) = masks.space, codes.domain.shape
    used = np.zeros((batch, k), dtype=np.bool_)
    left = np.full(batch, space.n_layers, dtype=np.int64)
    behind, rows = np.zeros(batch, dtype=np.int64), np.arange(batch)
    records: list[tuple[NDArray[np.int64] | NDArray[np.bool_], ...]] = []
    for step in range(int(codes.count.max())):
        place = codes.count - 1 - step
        live, at = place >= 0, np.maximum(place, 0)
        domain, layers, choice = (a[rows, at] for a in (codes.domain, codes.layers, codes.choice))
        open_ = masks.steps(codes.knob, used, left, behind) & live[:, None, None]
        legal = masks.choices(codes.knob, used, left, behind, domain, layers) & live[:, None]
        if not (open_[rows, domain, layers - 1] & legal[rows, choice])[live].all():
            raise ValueError("the masks do not allow this plan")
        records.append(
            (
                np.where(live, domain, -1),
                np.where(live, layers, 0),
                np.where(live, choice, 0),
                open_,
                legal,
                behind.copy(),
            )
        )
        used[rows[live], domain[live]] = True
        left = left - np.where(live, layers, 0)
        behind = behind + np.where(live, space.pp[codes.knob, space.class_of[domain], choice], 0)
    parts = [torch.from_numpy(np.stack(column, axis=1)) for column in zip(*records, strict=True)]
    return Actions(torch.from_numpy(go.astype(np.int64)), torch.from_numpy(codes.knob.copy()), *parts)


def codes_of(actions: Actions, k: int) -> Codes:
    """Returns actions, whose steps run from the last share to the first, as plans in pipeline order."""
    domain, layers, choice = (a.numpy() for a in (actions.domain, actions.layers, actions.choice))
    count = (domain >= 0).sum(1)
    place = count[:, None] - 1 - np.arange(k)
    at = np.clip(place, 0, domain.shape[1] - 1)
    live = place >= 0
    columns = [
        np.where(live, np.take_along_axis(a, at, axis=1), fill)
        for a, fill in ((domain, -1), (layers, 0), (choice, 0))
    ]
    return Codes(actions.knob.numpy(), count, *columns)
