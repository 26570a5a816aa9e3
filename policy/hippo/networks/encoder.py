"""Graph encoder: torch-geometric layers over the complete graph of domains, in scatter and dense form.

A cluster is small and complete, so gathering and scattering edges costs more than one dense product. The
layers and their weights are torch-geometric's; `dense=True` computes the same function with batched
products over (B, K, K), tested equal.
"""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, MessagePassing

from policy.hippo.networks.hippo_config import GnnConfig


class EdgeSage(MessagePassing):
    """GraphSAGE with edges: h_i' = W_self h_i + mean_{j != i} relu(W_near h_j + W_edge e_ji).

    Mean aggregator of Hamilton et al. 2017; the edge term is added here, since plans depend on the links.
    """

    def __init__(self, inputs: int, outputs: int, edge: int):
        super().__init__(aggr="mean")
        self.own = nn.Linear(inputs, outputs)
        self.near = nn.Linear(inputs, outputs, bias=False)
        self.edge = nn.Linear(edge, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Scatter form: x (n, inputs), edge_index (2, m) rows source and target, edge_attr (m, edge)."""
        return self.own(x) + self.propagate(edge_index, x=self.near(x), edge_attr=self.edge(edge_attr))

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """Message of j to i."""
        return torch.relu(x_j + edge_attr)

    def dense(self, x: Tensor, edges: Tensor) -> Tensor:
        """Dense form: x (B, K, inputs), edges (B, K, K, edge) with [b, j, i] = j -> i."""
        k = x.shape[1]
        messages = torch.relu(self.near(x).unsqueeze(2) + self.edge(edges))
        own_loop = torch.diagonal(messages, dim1=1, dim2=2).transpose(1, 2)
        return self.own(x) + (messages.sum(1) - own_loop) / max(k - 1, 1)


class DenseGat(GATv2Conv):
    """torch-geometric's GATv2 (Brody et al. 2022) with one head, plus a dense form over a complete graph."""

    def __init__(self, inputs: int, outputs: int, edge: int):
        super().__init__(inputs, outputs, edge_dim=edge, add_self_loops=False)

    def dense(self, x: Tensor, edges: Tensor) -> Tensor:
        """Dense form: x (B, K, inputs), edges (B, K, K, edge) with [b, j, i] = j -> i."""
        k = x.shape[1]
        source, target = self.lin_l(x), self.lin_r(x)
        mixed = source.unsqueeze(2) + target.unsqueeze(1) + self.lin_edge(edges)
        score = (nn.functional.leaky_relu(mixed, self.negative_slope) * self.att[0, 0]).sum(-1)
        loops = torch.eye(k, dtype=torch.bool)
        if k > 1:
            score = score.masked_fill(loops, -torch.inf)
            weight = score.softmax(1)
        else:
            weight = torch.zeros_like(score)  # a single domain has no neighbours
        return torch.einsum("bji,bjf->bif", weight, source) + self.bias


class NoMessagePassing(nn.Module):
    """A layer without messages between domains (an ablation)."""

    def __init__(self, inputs: int, outputs: int, edge: int):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)

    def dense(self, x: Tensor, edges: Tensor) -> Tensor:
        """Same signature as the other layers; `edges` are ignored."""
        return torch.as_tensor(self.own(x))


class GraphEncoder(nn.Module):
    """Embeddings of every domain and of the whole cluster.

    Input: nodes (B, K, node), edges (B, K, K, edge) where [b, i, j] describes the link i -> j. A message over
    i -> j has the features of both directions, because activations go one way and gradients the other.
    Output: domain embeddings (B, K, hidden) and their mean and maximum, concatenated: (B, 2 hidden).
    """

    def __init__(self, node: int, edge: int, config: GnnConfig):
        super().__init__()
        layer = {"GraphSAGE": EdgeSage, "GATv2": DenseGat, "none": NoMessagePassing}[config.type]
        self._dense = config.dense or config.type == "none"
        self.enter = nn.Linear(node, config.hidden_dim)
        self.layers = nn.ModuleList(
            layer(config.hidden_dim, config.hidden_dim, 2 * edge) for _ in range(config.num_layers)
        )

    def forward(self, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the embeddings of the domains and of the cluster."""
        pairs = torch.cat([edges, edges.transpose(1, 2)], dim=-1)
        hidden = torch.relu(self.enter(nodes))
        for layer in self.layers:
            new = layer.dense(hidden, pairs) if self._dense else _scatter(layer, hidden, pairs)
            hidden = hidden + torch.relu(new)
        return hidden, torch.cat([hidden.mean(1), hidden.amax(1)], dim=-1)


def _scatter(layer: nn.Module, hidden: Tensor, pairs: Tensor) -> Tensor:
    """The layer's torch-geometric form on B complete graphs laid side by side."""
    batch, k, width = hidden.shape
    source, target = (~torch.eye(k, dtype=torch.bool)).nonzero(as_tuple=True)
    offset = (torch.arange(batch) * k).repeat_interleave(len(source))
    index = torch.stack([source.repeat(batch) + offset, target.repeat(batch) + offset])
    out = layer(hidden.reshape(-1, width), index, pairs[:, source, target].reshape(-1, pairs.shape[-1]))
    return torch.as_tensor(out).reshape(batch, k, -1)
