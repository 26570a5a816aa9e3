"""The upper agent: hold or move, then which knob, then share after share (domain, layers) from the last to
the first.

Nothing in it knows K, N or the number of knobs: domains, layer counts and knobs are scored one by one from
what they would mean (links, fraction, stage time), so one network serves every cluster and model.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from policy.hippo.config import GnnConfig
from policy.hippo.encoder import GraphEncoder
from policy.hippo.observation import EDGE, GLOBAL, KNOB, NODE, Observation

SPLITS = 8
SCALARS = 5
LAYER = SPLITS + 9
MASKED = -1e9


@dataclass(frozen=True, eq=False)
class Encoded:
    """The network's view of B situations, computed once and used by every head."""

    hidden: Tensor  # (B, K, h)
    graph: Tensor  # (B, h)
    edges: Tensor  # (B, K, K, h), projected: [b, i, j] seen by i when j follows it
    domain: Tensor  # (B, K, h), what the domain head makes of each domain
    last: Tensor  # (B, K, h), the same for the domain placed last
    layer: Tensor  # (B, K, h), what the layer head makes of each domain

    def rows(self, index: Tensor) -> "Encoded":
        """The situations `index` (R,), repeated or left out."""
        return Encoded(*(getattr(self, field.name)[index] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Partial:
    """R plans under construction: what the next step can see."""

    knob: Tensor  # (R, KNOB) features of the chosen knob
    used: Tensor  # (R, K) bool
    left: Tensor  # (R,) layers not yet placed
    last: Tensor  # (R,) domain placed last, -1 at the first step
    open: Tensor  # (R, K, N) bool, legal steps


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
        """Embeddings of B situations."""
        hidden, pooled = self.encoder(observation.nodes, observation.edges)
        pairs = torch.cat([observation.edges, observation.edges.transpose(1, 2)], dim=-1)
        graph = self.graph(torch.cat([pooled, observation.globals], dim=-1))
        heads = (self.domain_own(hidden), self.domain_last(hidden), self.layer_own(hidden))
        return Encoded(hidden, graph, self.edge(pairs), *heads)

    def value(self, state: Encoded) -> Tensor:
        """Expected discounted reward from here, (B,)."""
        return torch.as_tensor(self.value_head(state.graph).squeeze(-1))

    def go_logits(self, state: Encoded, may_hold: Tensor) -> Tensor:
        """Logits (B, 2) of hold and move; holding is closed where there is nothing legal to hold."""
        logits = self.go(state.graph)
        closed = torch.stack([~may_hold, torch.zeros_like(may_hold)], dim=-1)
        return torch.as_tensor(logits.masked_fill(closed, MASKED))

    def knob_logits(self, state: Encoded, observation: Observation) -> Tensor:
        """Logits (B, C) over (dp, micro-batch size)."""
        mixed = torch.relu(self.knob_context(state.graph).unsqueeze(1) + self.knob_own(observation.knobs))
        logits = self.knob_out(mixed).squeeze(-1)
        return torch.as_tensor(logits.masked_fill(~observation.knob_mask, MASKED))

    def context(self, state: Encoded, partial: Partial) -> Tensor:
        """What both step heads share, (R, 2 h)."""
        n_layers, k = partial.open.shape[2], partial.open.shape[1]
        left, count = partial.left.to(state.graph), partial.used.sum(1).to(state.graph)
        unplaced = (partial.last < 0).to(state.graph)
        scalars = torch.stack([left / n_layers, count / k, count / 4, 1 / (1 + k - count), unplaced], dim=-1)
        graph, knob = self.step_graph(state.graph), self.step_knob(partial.knob)
        return torch.as_tensor(graph + knob + self.step_scalar(scalars))

    def domain_logits(self, state: Encoded, partial: Partial, context: Tensor) -> Tensor:
        """Logits (R, K) of the domain that precedes the last one placed."""
        h = state.graph.shape[-1]
        rows = torch.arange(len(partial.last))
        room = partial.open.sum(2).to(state.graph) / partial.open.shape[2]
        finish = partial.open[rows, :, (partial.left - 1).clamp(min=0)].to(state.graph)
        mixed = (
            context[:, :h].unsqueeze(1)
            + state.domain
            + self.domain_room(torch.stack([room, finish], dim=-1))
            + _after(self, state, partial).unsqueeze(1)
            + _links(state, partial)
        )
        logits = self.domain_out(torch.relu(mixed)).squeeze(-1)
        return torch.as_tensor(logits.masked_fill(room == 0, MASKED))

    def layer_logits(
        self, state: Encoded, partial: Partial, context: Tensor, domain: Tensor, observation: Observation
    ) -> Tensor:
        """Logits (R, N) of how many of the layers left the `domain` (R,) takes; entry l - 1 is l layers."""
        h = state.graph.shape[-1]
        rows = torch.arange(len(domain))
        legal = partial.open[rows, domain]
        own = state.layer[rows, domain] + _links(state, partial)[rows, domain]
        counts = self.layer_count(layer_features(partial.left, legal, domain, observation))
        logits = self.layer_out(torch.relu((context[:, h:] + own).unsqueeze(1) + counts)).squeeze(-1)
        return torch.as_tensor(logits.masked_fill(~legal, MASKED))


def _after(agent: UpperAgent, state: Encoded, partial: Partial) -> Tensor:
    """The domain placed last as the step sees it, (R, h); a learned vector at the first step."""
    rows = torch.arange(len(partial.last))
    last = state.last[rows, partial.last.clamp(min=0)]
    return torch.where((partial.last < 0).unsqueeze(-1), agent.start, last)


def _links(state: Encoded, partial: Partial) -> Tensor:
    """Links from every domain to the one placed last, (R, K, h); nothing at the first step."""
    rows = torch.arange(len(partial.last))
    links = state.edges[rows, :, partial.last.clamp(min=0)]
    return links.masked_fill((partial.last < 0)[:, None, None], 0.0)


def layer_features(left: Tensor, legal: Tensor, domain: Tensor, observation: Observation) -> Tensor:
    """What taking l = 1..N of `left` layers would mean, (R, N, LAYER).

    A fraction says it for every N; bumps around left/l = 1..SPLITS say "one of j equal parts".
    """
    rows, n_layers = torch.arange(len(left)), legal.shape[1]
    total = left.to(observation.nodes).unsqueeze(1)
    layers = torch.arange(1, n_layers + 1).to(total).expand(len(left), -1)
    part = (total / layers).clamp(min=1e-3).log()
    splits = torch.arange(1, SPLITS + 1).to(total).log()
    bumps = torch.exp(-(((part.unsqueeze(-1) - splits) / 0.06) ** 2))
    begin, end = observation.begin[rows, domain].unsqueeze(1), observation.end[rows, domain].unsqueeze(1)
    pace = observation.pace[rows, domain].unsqueeze(1)
    top = (legal * layers).amax(1, keepdim=True)
    features = [
        layers / n_layers,
        layers / n_layers * pace,
        (total - layers) / n_layers,
        part.clamp(-3, 5),
        (layers == total).to(total),
        (layers == top).to(total),
        (total - layers == begin).to(total),
        ((total - layers == begin) & (total == end)).to(total),
        (layers == end - begin).to(total),
    ]
    return torch.cat([torch.stack(features, dim=-1), bumps], dim=-1)
