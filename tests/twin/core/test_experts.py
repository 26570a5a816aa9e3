"""Mixtures of experts: parameters and FLOPs by hand, and mixtures that cannot be."""

from dataclasses import replace

import pytest

from ingest.core.errors import UsageError
from twin.core.experts import Experts
from twin.core.model_presets import preset
from twin.core.transformer import Transformer

H, S = 2048, 4096
QWEN = preset("qwen1.5-moe-a2.7b")  # 60 experts of 1,408, 4 a token, shared ones of 5,632, hidden 2,048


def test_a_block_of_experts_by_hand() -> None:
    expert, shared = 3 * H * 1408, 3 * H * 5632
    assert QWEN.routed_parameters == 60 * expert
    assert QWEN.mixture_parameters == 4 * H * H + 2 * H + 60 * H + shared + 60 * expert
    passed = 2 * S * (4 * H * H + 60 * H + shared + 4 * expert) + 4 * S * S * H
    assert QWEN.mixture_flops == passed
    assert QWEN.flops_per_sequence == 3 * (24 * passed + 2 * S * H * 151936)


def test_the_published_sizes() -> None:
    """14.3 B parameters, of which a token passes 2.7 B (without the embedding table: 2.4 B)."""
    assert QWEN.parameters == pytest.approx(14.3e9, rel=0.002)
    passed = (QWEN.flops_per_sequence / 3 - 24 * 4 * S * S * H) / (2 * S)
    assert passed + 151936 * H == pytest.approx(2.7e9, rel=0.01)


def test_blocks_with_and_without_experts() -> None:
    made = replace(QWEN, blocks=7, experts=Experts(60, 4, 1408, every=2, first=3))
    held = [layer.routed > 0 for layer in made.layers()]
    assert held == [False, False, False, False, True, False, True, False, False]  # blocks 3 and 5 of 0 to 6
    dense, mixed = made.layers()[1], made.layers()[4]
    assert (dense.parameters, mixed.parameters) == (made.block_parameters, made.mixture_parameters)
    assert (dense.forward_flops_per_sequence, mixed.forward_flops_per_sequence) == (
        made.block_flops,
        made.mixture_flops,
    )
    whole = made.embedding_parameters + 5 * made.block_parameters + 2 * made.mixture_parameters
    assert made.parameters == whole + made.head_parameters


@pytest.mark.parametrize(
    ("experts", "words"),
    [
        (Experts(1, 1, 64), "1 experts are no mixture"),
        (Experts(4, 5, 64), "cannot pass 5 of 4 experts"),
        (Experts(4, 0, 64), "cannot pass 0 of 4 experts"),
        (Experts(4, 2, 0), "at least 1"),
        (Experts(4, 2, 64, every=0), "at least 1"),
        (Experts(4, 2, 64, shared=-1), "at least 0"),
    ],
)
def test_mixtures_that_cannot_be(experts: Experts, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Transformer("m", 2, 128, 1, 1, 256, True, 64, 1000, experts=experts)
