"""Heads of their own width and latent attention: parameters, FLOPs and bytes by hand."""

from dataclasses import replace

import pytest

from ingest.core.errors import UsageError
from twin.core.adapters import Adapters
from twin.core.latent_attention import Latent
from twin.core.model_presets import preset
from twin.core.transformer import Transformer
from twin.costs import context_exchange, memory

H, A, S = 2048, 16, 4096
LITE = preset("deepseek-v2-lite")  # no query rank, keys and values from 512, heads of 128 + 64, values of 128


@pytest.mark.parametrize(
    ("name", "parameters", "passed"),
    [("qwen3-8b", 8_190_735_360, 8.19e9), ("qwen3-30b-a3b", 30_532_122_624, 3.35e9)],
)
def test_heads_of_128_whatever_the_hidden_size(name: str, parameters: int, passed: float) -> None:
    """Counts of the published checkpoints, but for the norms of a head's query and key."""
    model = preset(name)
    assert model.head_width == 128
    assert model.parameters + model.blocks * 2 * 128 == parameters
    each = (model.flops_per_sequence / 3 - model.blocks * model.core_flops) / (2 * model.seq)
    assert each + model.vocab * model.hidden == pytest.approx(passed, rel=0.01)


def test_a_block_of_deepseek_v2_lite_by_hand() -> None:
    query, down, up, output = H * A * 192, H * (512 + 64), 512 * A * (128 + 128), A * 128 * H
    weights = query + down + up + output
    assert LITE.attention_weights == weights
    assert LITE.block_parameters == weights + 2 * H + 512 + 3 * H * 10944
    assert LITE.core_flops == 2 * S * S * A * 192 + 2 * S * S * A * 128
    assert LITE.block_flops == 2 * S * (weights + 3 * H * 10944) + LITE.core_flops


@pytest.mark.parametrize(
    ("name", "parameters", "passed"),
    [("deepseek-v2-lite", 15.7e9, 2.66e9), ("deepseek-v3", 671e9, 37.5e9)],
)
def test_the_published_sizes(name: str, parameters: float, passed: float) -> None:
    """DeepSeek-V2-Lite: 15.7 B, 2.4 B of them for a token without embeddings; V3: 671 B, 37 B."""
    model = preset(name)
    assert model.parameters == pytest.approx(parameters, rel=0.001)
    each = (model.flops_per_sequence / 3 - model.blocks * model.core_flops) / (2 * model.seq)
    assert each + model.vocab * model.hidden == pytest.approx(passed, rel=0.01)


def test_bytes_that_a_block_keeps_and_sends() -> None:
    dense = replace(LITE, experts=None)
    inside = A * 192 + A * 192 + A * 128 + A * 128 + 2 * 512 + 64  # queries, keys, values, result, latent
    kept = 2 * S * (4 * H + inside + 4 * 10944)  # and inputs of norms and products, and the MLP's
    assert memory.block_activation_bytes(dense, 1, "none", False) == kept
    assert context_exchange.block_bytes(dense, 4, 1, 2) == 2 * S / 2 * A * (192 + 128) / 4


def test_an_even_head_dim_changes_nothing() -> None:
    plain = Transformer("m", 2, 1024, 8, 2, 3072, True, 512, 1000)
    named = replace(plain, head_dim=128)
    assert named.parameters == plain.parameters
    assert named.flops_per_sequence == plain.flops_per_sequence
    wide = replace(plain, head_dim=256, adapters=Adapters(4, ("q", "o")))
    assert wide.adapter_widths == ((1024, 2048), (2048, 1024))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kv_heads": 4}, "as many kv_heads as heads"),
        ({"head_dim": 64}, "no head_dim"),
        ({"adapters": Adapters(4)}, "adapters of latent attention have no model"),
        ({"latent": Latent(0, 0, 128, 64, 128)}, "widths of at least 1"),
        ({"latent": None, "head_dim": -1}, "head_dim -1"),
    ],
)
def test_attention_that_cannot_be(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replace(LITE, **wrong)  # type: ignore[arg-type]
