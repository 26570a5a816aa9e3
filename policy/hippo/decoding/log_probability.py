"""Log-probabilities of given actions, entropies and values, all steps at once (teacher forcing).

A `TeacherForcingBatch` holds what depends on observations and actions alone; it is made once and evaluated
under the changing networks in minibatches. Only legal layer counts are scored. A plan counts only where the
action is to move: the shares of a held plan were never executed.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from policy.hippo.decoding.sampling import Actions, Choices, inner_features, prefixes
from policy.hippo.networks.lower_agent import LowerAgent, likelihood
from policy.hippo.networks.upper_agent import (
    Partial,
    Sizes,
    UpperAgent,
    domain_features,
    layer_features,
    scalars,
)
from policy.hippo.tables.observation import Observation


@dataclass(frozen=True, eq=False)
class ActionEvaluation:
    """Log-probability and entropy of B actions under both levels, and the upper agent's value; all (B,)."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor
    lower_log_prob: Tensor  # sum over the shares
    lower_entropy: Tensor


@dataclass(frozen=True, eq=False)
class TeacherForcingBatch:
    """B observations with their actions: R shares placed, with M legal layer counts in total."""

    observation: Observation
    go: Tensor  # (B,)
    knob: Tensor  # (B,)
    shares: Tensor  # (B,) number of shares of each action; stored one action after the other
    domain: Tensor  # (R,)
    layers: Tensor  # (R,)
    partial: Partial
    counts: Tensor  # (R,) number of legal layer counts; stored one share after the other
    sizes: Sizes
    choice: Tensor  # (R,)
    legal: Tensor  # (R, Q)
    inner: Tensor  # (R, Q, CHOICE)

    def __len__(self) -> int:
        return len(self.go)

    def take(self, index: Tensor) -> "TeacherForcingBatch":
        """Returns the actions `index`."""
        shares = self.shares[index]
        share = _ranges(_starts(self.shares)[index], shares)
        counts = self.counts[share]
        pair = _ranges(_starts(self.counts)[share], counts)
        row = torch.arange(len(index)).repeat_interleave(shares)
        sizes = Sizes(
            torch.arange(len(share)).repeat_interleave(counts),
            self.sizes.layers.index_select(0, pair),
            self.sizes.features.index_select(0, pair),
            self.sizes.n_layers,
        )
        return TeacherForcingBatch(
            self.observation.take(index), self.go[index], self.knob[index], shares, self.domain[share],
            self.layers[share], self.partial.take(share, row), counts, sizes, self.choice[share],
            self.legal[share], self.inner.index_select(0, share),
        )  # fmt: skip


def teacher_forcing_batch(
    problem: Choices, observation: Observation, actions: Actions
) -> TeacherForcingBatch:
    """Returns what depends on observations and actions alone."""
    live = (actions.domain >= 0) & (actions.go == 1).unsqueeze(1)
    row, step = live.nonzero(as_tuple=True)
    left, used, last = (part[row, step] for part in prefixes(actions, observation.nodes.shape[1]))
    open_, domain, layers = actions.open[row, step], actions.domain[row, step], actions.layers[row, step]
    shares = torch.arange(len(row))
    legal = open_[shares, domain]
    share, size = legal.nonzero(as_tuple=True)
    n_layers = open_.shape[2]
    partial = Partial(
        row,
        observation.knobs[row, actions.knob[row]],
        scalars(left, used, last, n_layers),
        last,
        domain_features(
            observation.edges, row, last, open_.sum(2) / n_layers,
            open_[shares, :, (left - 1).clamp(min=0)].float(),
        ),
    )  # fmt: skip
    top = (legal * torch.arange(1, n_layers + 1)).amax(1) if len(row) else left
    at = row[share], domain[share]
    begin, end, pace = (getattr(observation, name)[at] for name in ("begin", "end", "pace"))
    features = layer_features(size + 1, left[share], top[share], begin, end, pace, n_layers)
    behind, current = actions.behind[row, step], observation.current[row, domain]
    given = (actions.knob[row], domain, layers, behind, current)
    inner = inner_features(problem, *(x.numpy() for x in given))
    return TeacherForcingBatch(
        observation, actions.go, actions.knob, live.sum(1), domain, layers, partial, legal.sum(1),
        Sizes(share, size, features, n_layers), actions.choice[row, step], actions.legal[row, step], inner,
    )  # fmt: skip


def evaluate_actions(
    upper: UpperAgent, lower: LowerAgent | None, batch: TeacherForcingBatch
) -> ActionEvaluation:
    """Evaluates all actions of the batch under both levels; without `lower` its part is 0."""
    observation, partial = batch.observation, batch.partial
    state = upper.embed(observation)
    go, value = likelihood(upper.go_logits(state, observation.may_hold), batch.go), upper.value(state)
    none = torch.zeros_like(value)
    moved = batch.go.nonzero().squeeze(1)  # what was held has no plan
    if len(moved) == 0:
        return ActionEvaluation(go.log_prob, go.entropy, value, none, none)
    state, row = state.rows(moved), partial.row
    legal = observation.knob_mask[moved]
    knob = likelihood(upper.knob_logits(state, observation.knobs[moved], legal), batch.knob[moved])
    plans = replace(partial, row=(batch.go.cumsum(0) - 1)[row])
    context = upper.step_context(state, plans)
    first = likelihood(upper.domain_logits(state, plans, context), batch.domain)
    own = upper.layer_context(state, plans, context, batch.domain)
    second = likelihood(upper.layer_logits(own, batch.sizes), batch.layers - 1)

    def total(of_go: Tensor, of_knob: Tensor, of_shares: Tensor) -> Tensor:
        return of_go.index_add(0, moved, of_knob).index_add(0, row, of_shares)

    log_prob = total(go.log_prob, knob.log_prob, first.log_prob + second.log_prob)
    entropy = total(go.entropy, knob.entropy, first.entropy + second.entropy)
    if lower is None:
        return ActionEvaluation(log_prob, entropy, value, none, none)
    third = likelihood(lower.logits(batch.inner, batch.legal)[0], batch.choice)
    inside = [none.index_add(0, row, part) for part in (third.log_prob, third.entropy)]
    return ActionEvaluation(log_prob, entropy, value, *inside)


def _starts(counts: Tensor) -> Tensor:
    return counts.cumsum(0) - counts


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Concatenates the ranges starts[i] .. starts[i] + counts[i] - 1."""
    shift = starts - _starts(counts)
    return torch.arange(int(counts.sum())) + shift.repeat_interleave(counts)
