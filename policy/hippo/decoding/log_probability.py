"""How likely given answers are, and what their situations are worth: all steps at once (teacher forcing).

A `Case` is what depends on situations and answers alone: it is made once, and judged by the changing networks
as often as learning needs, a few rows at a time. Of the layer counts only legal ones are looked at, which are
few. A plan counts only where the answer was to move; shares of a held plan were never carried out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from policy.hippo.decoding.sampling import Actions, Choices, inner_features, prefixes
from policy.hippo.networks.lower_agent import LowerAgent, answer
from policy.hippo.networks.observation import Observation
from policy.hippo.networks.upper_agent import Partial, Sizes, UpperAgent, layer_features, scalars


@dataclass(frozen=True, eq=False)
class Judged:
    """Probabilities of B answers under both levels, and the upper agent's value; all (B,)."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor
    lower_log_prob: Tensor  # sum over the shares
    lower_entropy: Tensor


@dataclass(frozen=True, eq=False)
class Case:
    """B situations with their answers: R shares were placed, with M legal layer counts between them."""

    observation: Observation
    go: Tensor  # (B,)
    knob: Tensor  # (B,)
    shares: Tensor  # (B,) number of shares of each answer; theirs stand together, in order
    domain: Tensor  # (R,)
    layers: Tensor  # (R,)
    partial: Partial
    counts: Tensor  # (R,) number of legal layer counts; theirs stand together
    sizes: Sizes
    choice: Tensor  # (R,)
    legal: Tensor  # (R, Q)
    inner: Tensor  # (R, Q, CHOICE)

    def __len__(self) -> int:
        return len(self.go)

    def take(self, index: Tensor) -> "Case":
        """The answers `index`."""
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
        return Case(
            self.observation.take(index), self.go[index], self.knob[index], shares, self.domain[share],
            self.layers[share], self.partial.take(share, row), counts, sizes, self.choice[share],
            self.legal[share], self.inner.index_select(0, share),
        )  # fmt: skip


def case(problem: Choices, observation: Observation, actions: Actions) -> Case:
    """What of the answers does not depend on any network."""
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
        open_.sum(2) / n_layers,
        open_[shares, :, (left - 1).clamp(min=0)].float(),
    )
    top = (legal * torch.arange(1, n_layers + 1)).amax(1) if len(row) else left
    at = row[share], domain[share]
    begin, end, pace = (getattr(observation, name)[at] for name in ("begin", "end", "pace"))
    features = layer_features(size + 1, left[share], top[share], begin, end, pace, n_layers)
    behind, current = actions.behind[row, step], observation.current[row, domain]
    given = (actions.knob[row], domain, layers, behind, current)
    inner = inner_features(problem, *(x.numpy() for x in given))
    return Case(
        observation, actions.go, actions.knob, live.sum(1), domain, layers, partial, legal.sum(1),
        Sizes(share, size, features, n_layers), actions.choice[row, step], actions.legal[row, step], inner,
    )  # fmt: skip


def judge(upper: UpperAgent, lower: LowerAgent | None, case: Case) -> Judged:
    """Both levels on all answers of the case; without `lower` its part is 0."""
    observation, row = case.observation, case.partial.row
    state = upper.encode(observation)
    go = answer(upper.go_logits(state, observation.may_hold), case.go)
    knob = answer(upper.knob_logits(state, observation), case.knob)
    moved, value = case.go.to(state.graph), upper.value(state)
    log_prob, entropy = go.log_prob + moved * knob.log_prob, go.entropy + moved * knob.entropy
    none = torch.zeros_like(value)
    if len(row) == 0:
        return Judged(log_prob, entropy, value, none, none)
    context = upper.context(state, case.partial)
    first = answer(upper.domain_logits(state, case.partial, context), case.domain)
    second = answer(
        upper.layer_logits(state, case.partial, context, case.domain, case.sizes), case.layers - 1
    )
    log_prob = log_prob.index_add(0, row, first.log_prob + second.log_prob)
    entropy = entropy.index_add(0, row, first.entropy + second.entropy)
    if lower is None:
        return Judged(log_prob, entropy, value, none, none)
    third = answer(lower.logits(case.inner, case.legal)[0], case.choice)
    inside = [none.index_add(0, row, part) for part in (third.log_prob, third.entropy)]
    return Judged(log_prob, entropy, value, *inside)


def _starts(counts: Tensor) -> Tensor:
    return counts.cumsum(0) - counts


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """starts[0], starts[0] + 1, ... (counts[0] of them), then the same of the next."""
    shift = starts - _starts(counts)
    return torch.arange(int(counts.sum())) + shift.repeat_interleave(counts)
