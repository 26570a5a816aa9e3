"""The upper agent: hold or move, the knob, then (domain, layers) of each share from the last to the first.

Domains, layer counts and knobs are scored one by one by their features (links, fractions, stage times), so
one network serves every cluster and model.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from policy.hippo.networks.encoder import GraphEncoder
from policy.hippo.networks.hippo_config import GnnConfig
from policy.hippo.tables.observation import EDGE, GLOBAL, KNOB, NODE, Observation

SPLITS = 8
SCALARS = 5
LAYER = SPLITS + 9
MASKED = -1e9


@dataclass(frozen=True, eq=False)
class Encoded:
    """Embeddings of B situations, used by every head."""

    hidden: Tensor  # (B, K, h)
    graph: Tensor  # (B, h)
    edges: Tensor  # (B, K, K, h) of the link i -> j at [b, i, j]
    domain: Tensor  # (B, K, h) input of the domain head
    last: Tensor  # (B, K, h) input of the domain head for the domain placed last
    layer: Tensor  # (B, K, h) input of the layer head

    def rows(self, index: Tensor) -> "Encoded":
        """Returns the situations `index` (R,)."""
        return Encoded(*(getattr(self, field.name)[index] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Partial:
    """R partial plans as the next step reads them."""

    row: Tensor  # (R,) situation of each plan
    knob: Tensor  # (R, KNOB) features of the chosen knob
    scalars: Tensor  # (R, SCALARS), see `scalars`
    last: Tensor  # (R,) domain placed last, -1 at the first step
    room: Tensor  # (R, K) share of the layer counts that are legal for each domain
    finish: Tensor  # (R, K) 1 where the domain may take all layers left

    def last_index(self, k: int) -> Tensor:
        """Index (R,) of the domain placed last among all B K domains; arbitrary at the first step."""
        return self.row * k + self.last.clamp(min=0)

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

    def encode(self, observation: Observation) -> Encoded:
        """Returns the embeddings of B situations."""
        hidden, pooled = self.encoder(observation.nodes, observation.edges)
        pairs = torch.cat([observation.edges, observation.edges.transpose(1, 2)], dim=-1)
        graph = self.graph(torch.cat([pooled, observation.globals], dim=-1))
        heads = (self.domain_own(hidden), self.domain_last(hidden), self.layer_own(hidden))
        return Encoded(hidden, graph, self.edge(pairs), *heads)

    def value(self, state: Encoded) -> Tensor:
        """Expected discounted reward, (B,)."""
        return torch.as_tensor(self.value_head(state.graph).squeeze(-1))

    def go_logits(self, state: Encoded, may_hold: Tensor) -> Tensor:
        """Logits (B, 2) of hold and move; hold is masked without a legal running plan."""
        logits = self.go(state.graph)
        closed = torch.stack([~may_hold, torch.zeros_like(may_hold)], dim=-1)
        return torch.as_tensor(logits.masked_fill(closed, MASKED))

    def knob_logits(self, state: Encoded, observation: Observation) -> Tensor:
        """Logits (B, C) over (dp, micro-batch size)."""
        mixed = torch.relu(self.knob_context(state.graph).unsqueeze(1) + self.knob_own(observation.knobs))
        logits = self.knob_out(mixed).squeeze(-1)
        return torch.as_tensor(logits.masked_fill(~observation.knob_mask, MASKED))

    def context(self, state: Encoded, partial: Partial) -> tuple[Tensor, Tensor]:
        """Input that both step heads share (R, 2 h), and the links to the domain placed last (R, K, h)."""
        graph = self.step_graph(state.graph).index_select(0, partial.row)
        shared = graph + self.step_knob(partial.knob) + self.step_scalar(partial.scalars)
        k, h = state.domain.shape[1:]
        # [b, j, i]: the link i -> j; zero at the first step.
        links = state.edges.transpose(1, 2).reshape(-1, k, h).index_select(0, partial.last_index(k))
        return shared, links.masked_fill((partial.last < 0)[:, None, None], 0.0)

    def domain_logits(self, state: Encoded, partial: Partial, context: tuple[Tensor, Tensor]) -> Tensor:
        """Logits (R, K) of the domain that precedes the last one placed."""
        shared, links = context
        k, h = links.shape[1:]
        last = state.last.reshape(-1, h).index_select(0, partial.last_index(k))
        after = torch.where((partial.last < 0).unsqueeze(-1), self.start, last)
        mixed = (
            (shared[:, :h] + after).unsqueeze(1)
            + state.domain.index_select(0, partial.row)
            + self.domain_room(torch.stack([partial.room, partial.finish], dim=-1))
            + links
        )
        logits = self.domain_out(torch.relu(mixed)).squeeze(-1)
        return torch.as_tensor(logits.masked_fill(partial.room == 0, MASKED))

    def layer_logits(
        self,
        state: Encoded,
        partial: Partial,
        context: tuple[Tensor, Tensor],
        domain: Tensor,
        sizes: Sizes,
    ) -> Tensor:
        """Logits (R, N) of the number of layers of the `domain` (R,); entry l - 1 is l layers."""
        shared, links = context
        k, h = links.shape[1:]
        link = links.reshape(-1, h).index_select(0, torch.arange(len(domain)) * k + domain)
        own = shared[:, h:] + state.layer.reshape(-1, h).index_select(0, partial.row * k + domain) + link
        counts = self.layer_count(sizes.features)
        legal = self.layer_out(torch.relu(own.index_select(0, sizes.share) + counts)).squeeze(-1)
        logits = legal.new_full((len(domain) * sizes.n_layers,), MASKED)
        flat = logits.index_copy(0, sizes.share * sizes.n_layers + sizes.layers, legal)
        return torch.as_tensor(flat.reshape(len(domain), sizes.n_layers))


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
