"""The upper agent: hold or move, the knob, then (domain, layers) of each share from the last to the first.

Domains, layer counts and knobs are scored one by one by their features (links, fractions, stage times), so
one network serves every cluster and model.
"""

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor, nn

from policy.hippo.networks.encoder import GraphEncoder
from policy.hippo.networks.hippo_config import GnnConfig
from policy.hippo.networks.layer_scores import LayerScores
from policy.hippo.tables.observation import EDGE, GLOBAL, KNOB, NODE, Observation

SPLITS = 8
SCALARS = 5
LAYER = SPLITS + 9
MASKED = -1e9


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of B situations."""

    hidden: Tensor  # (B, K, h)
    graph: Tensor  # (B, h)

    def rows(self, index: Tensor) -> Self:
        """Returns the situations `index` (R,)."""
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Encoded(Embedded):
    """The same with the inputs of the heads of a step for every domain, as decoding needs them."""

    edges: Tensor  # (B, K, K, h) of the link i -> j at [b, i, j]
    domain: Tensor  # (B, K, h) input of the domain head
    last: Tensor  # (B, K, h) input of the domain head for the domain placed last
    layer: Tensor  # (B, K, h) input of the layer head


@dataclass(frozen=True, eq=False)
class Partial:
    """R partial plans as the next step reads them."""

    row: Tensor  # (R,) situation of each plan
    knob: Tensor  # (R, KNOB) features of the chosen knob
    scalars: Tensor  # (R, SCALARS), see `scalars`
    last: Tensor  # (R,) domain placed last, -1 at the first step
    domains: Tensor  # (R, K, 2 EDGE + 3), see `domain_features`

    def take(self, index: Tensor, row: Tensor) -> "Partial":
        """Returns the plans `index`, of the situations `row`."""
        rest = [getattr(self, field.name).index_select(0, index) for field in fields(self)[1:]]
        return Partial(row, *rest)


@dataclass(frozen=True, eq=False)
class Sizes:
    """The M legal numbers of layers of R shares, share after share."""

    share: Tensor  # (M,)
    layers: Tensor  # (M,) less one
    features: Tensor  # (M, LAYER)
    n_layers: int


class UpperAgent(nn.Module):
    """Graph encoder, heads of the action and a value head."""

    def __init__(self, gnn: GnnConfig):
        super().__init__()
        h = gnn.hidden_dim
        self.encoder = GraphEncoder(NODE, EDGE, gnn)
        self.graph = nn.Sequential(nn.Linear(2 * h + GLOBAL, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.edge = nn.Linear(2 * EDGE, h)
        self.go = nn.Linear(h, 2)
        self.value_head = nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 1))
        self.knob_context, self.knob_own, self.knob_out = nn.Linear(h, h), nn.Linear(KNOB, h), nn.Linear(h, 1)
        self.step_graph, self.step_knob = nn.Linear(h, 2 * h), nn.Linear(KNOB, 2 * h)
        self.step_scalar = nn.Linear(SCALARS, 2 * h)
        self.domain_own, self.domain_last = nn.Linear(h, h), nn.Linear(h, h)
        self.domain_room, self.domain_out = nn.Linear(2, h), nn.Linear(h, 1)
        self.layer_own, self.layer_count = nn.Linear(h, h), nn.Linear(LAYER, h)
        self.layer_out = nn.Linear(h, 1)
        self.start = nn.Parameter(torch.zeros(h))

    def embed(self, observation: Observation) -> Embedded:
        """Returns the embeddings of B situations."""
        hidden, pooled = self.encoder(observation.nodes, observation.edges)
        return Embedded(hidden, self.graph(torch.cat([pooled, observation.globals], dim=-1)))

    def encode(self, observation: Observation) -> Encoded:
        """Returns the embeddings of B situations with the inputs of the heads of a step."""
        state = self.embed(observation)
        pairs = torch.cat([observation.edges, observation.edges.transpose(1, 2)], dim=-1)
        heads = (part(state.hidden) for part in (self.domain_own, self.domain_last, self.layer_own))
        return Encoded(state.hidden, state.graph, self.edge(pairs), *heads)

    def value(self, state: Embedded) -> Tensor:
        """Expected discounted reward, (B,)."""
        return torch.as_tensor(self.value_head(state.graph).squeeze(-1))

    def go_logits(self, state: Embedded, may_hold: Tensor) -> Tensor:
        """Logits (B, 2) of hold and move; hold is masked without a legal running plan."""
        logits = self.go(state.graph)
        closed = torch.stack([~may_hold, torch.zeros_like(may_hold)], dim=-1)
        return torch.as_tensor(logits.masked_fill(closed, MASKED))

    def knob_logits(self, state: Embedded, knobs: Tensor, legal: Tensor) -> Tensor:
        """Logits (B, C) over (dp, micro-batch size), of features (B, C, KNOB) and the mask (B, C)."""
        mixed = torch.relu(self.knob_context(state.graph).unsqueeze(1) + self.knob_own(knobs))
        logits = self.knob_out(mixed).squeeze(-1)
        return torch.as_tensor(logits.masked_fill(~legal, MASKED))

    def step_context(self, state: Embedded, partial: Partial) -> Tensor:
        """Input that both step heads share (R, 2 h)."""
        graph = self.step_graph(state.graph).index_select(0, partial.row)
        return torch.as_tensor(graph + self.step_knob(partial.knob) + self.step_scalar(partial.scalars))

    def domain_logits(self, state: Embedded, partial: Partial, context: Tensor) -> Tensor:
        """Logits (R, K) of the domain that precedes the last one placed."""
        k, h = state.hidden.shape[1:]
        last = partial.row * k + partial.last.clamp(min=0)  # arbitrary at the first step
        last = self.domain_last(state.hidden.reshape(-1, h).index_select(0, last))
        after = torch.where((partial.last < 0).unsqueeze(-1), self.start, last)
        weight = torch.cat([self._link_weight(), self.domain_room.weight], dim=1)
        mixed = nn.functional.linear(partial.domains, weight, self.domain_room.bias)
        mixed += self.domain_own(state.hidden).index_select(0, partial.row)
        mixed += (context[:, :h] + after).unsqueeze(1)
        logits = self.domain_out(mixed.relu_()).squeeze(-1)
        return torch.as_tensor(logits.masked_fill(partial.domains[:, :, -2] == 0, MASKED))

    def layer_context(self, state: Embedded, partial: Partial, context: Tensor, domain: Tensor) -> Tensor:
        """Input of the layer head for the `domain` (R,) of each share, (R, h)."""
        k, h = state.hidden.shape[1:]
        hidden = state.hidden.reshape(-1, h).index_select(0, partial.row * k + domain)
        link = partial.domains[torch.arange(len(domain)), domain, :-2]
        own = context[:, h:] + self.layer_own(hidden)
        return own + nn.functional.linear(link, self._link_weight())

    def _link_weight(self) -> Tensor:
        """Weights (h, 2 EDGE + 1) of `edge` with its bias, for the link to the domain placed last."""
        return torch.cat([self.edge.weight, self.edge.bias.unsqueeze(1)], dim=1)

    def layer_logits(self, own: Tensor, sizes: Sizes) -> Tensor:
        """Logits (R, N) of the number of layers, from `layer_context` (R, h); entry l - 1 is l layers."""
        linear = self.layer_count.weight, self.layer_count.bias, self.layer_out.weight, self.layer_out.bias
        legal: Tensor = LayerScores.apply(own, *linear, sizes.share, sizes.features)
        logits = legal.new_full((len(own) * sizes.n_layers,), MASKED)
        flat = logits.index_copy(0, sizes.share * sizes.n_layers + sizes.layers, legal)
        return torch.as_tensor(flat.reshape(len(own), sizes.n_layers))


def domain_features(edges: Tensor, row: Tensor, last: Tensor, room: Tensor, finish: Tensor) -> Tensor:
    """Features (R, K, 2 EDGE + 3) of every domain at R steps in the situations `row` (R,).

    The link to the domain placed `last` (R,), both directions, and 1, all 0 at the first step; `room` (R, K),
    the share of the layer counts that are legal for the domain; `finish` (R, K), 1 where it may take all
    layers left. `edges` are (B, K, K, EDGE).
    """
    to, back = edges[row, :, last.clamp(min=0)], edges[row, last.clamp(min=0)]
    link = torch.cat([to, back, torch.ones_like(to[:, :, :1])], dim=-1)
    link = link.masked_fill((last < 0)[:, None, None], 0.0)
    return torch.cat([link, room.unsqueeze(-1), finish.unsqueeze(-1)], dim=-1)


def scalars(left: Tensor, used: Tensor, last: Tensor, n_layers: int) -> Tensor:
    """Features (R, SCALARS) of layers left and domains used; `used` is (R, K)."""
    k, count = used.shape[1], used.sum(1).float()
    return torch.stack(
        [left / n_layers, count / k, count / 4, 1 / (1 + k - count), (last < 0).float()], dim=-1
    )


def layer_features(
    layers: Tensor, left: Tensor, top: Tensor, begin: Tensor, end: Tensor, pace: Tensor, n_layers: int
) -> Tensor:
    """Features (M, LAYER) of taking `layers` of the layers `left`; all arguments (M,).

    Fractions, so that N does not matter; Gaussian bumps around left / layers = 1..SPLITS mark equal parts.
    `top` is the largest legal number, `begin`, `end` and `pace` are the domain's.
    """
    part = (left / layers).clamp(min=1e-3).log()
    splits = torch.arange(1, SPLITS + 1).float().log()
    bumps = torch.exp(-(((part.unsqueeze(-1) - splits) / 0.06) ** 2))
    rest = left - layers == begin
    features = [
        layers / n_layers,
        layers / n_layers * pace,
        (left - layers) / n_layers,
        part.clamp(-3, 5),
        layers == left,
        layers == top,
        rest,
        rest & (left == end),
        layers == end - begin,
    ]
    return torch.cat([torch.stack([f.float() for f in features], dim=-1), bumps], dim=-1)
