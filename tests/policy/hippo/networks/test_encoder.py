"""The dense layers are torch-geometric's, and the encoder does not care how domains are numbered."""

import pytest
import torch

from policy.hippo.networks.encoder import GraphEncoder
from policy.hippo.networks.hippo_config import GnnConfig

NODE, EDGE = 5, 3


def encoder(kind: str, dense: bool) -> GraphEncoder:
    torch.manual_seed(1)
    return GraphEncoder(NODE, EDGE, GnnConfig(type=kind, hidden_dim=16, dense=dense)).double()


def graph(k: int, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(k)
    nodes = torch.randn(batch, k, NODE, generator=generator, dtype=torch.float64)
    return nodes, torch.randn(batch, k, k, EDGE, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["GraphSAGE", "GATv2"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_dense_form_equals_torch_geometric(kind: str, k: int) -> None:
    nodes, edges = graph(k)
    reference, pooled = encoder(kind, dense=False)(nodes, edges)
    ours, ours_pooled = encoder(kind, dense=True)(nodes, edges)
    torch.testing.assert_close(ours, reference, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ours_pooled, pooled, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["GraphSAGE", "GATv2"])
def test_renumbering_domains_renumbers_the_answer(kind: str) -> None:
    nodes, edges = graph(4)
    order = torch.tensor([2, 0, 3, 1])
    model = encoder(kind, dense=True)
    hidden, pooled = model(nodes, edges)
    moved, moved_pooled = model(nodes[:, order], edges[:, order][:, :, order])
    torch.testing.assert_close(moved, hidden[:, order])
    torch.testing.assert_close(moved_pooled, pooled)


def test_the_direction_of_a_link_matters() -> None:
    nodes, edges = graph(3)
    model = encoder("GraphSAGE", dense=True)
    assert not torch.allclose(model(nodes, edges)[0], model(nodes, edges.transpose(1, 2))[0])
