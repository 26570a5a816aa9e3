import pytest

from ingest.core.errors import UsageError
from twin.core.model_presets import PRESETS, preset
from twin.core.transformer import Transformer, classic


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # 48 (12 h^2 + 13 h) + (V + s) h + 2 h with h = 1600
        ("gpt2-1.5b", 48 * (12 * 1600**2 + 13 * 1600) + (50257 + 1024) * 1600 + 3200),
        ("gpt3-175b", 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048) * 12288 + 2 * 12288),
        # the counts that the published checkpoints report
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("mixtral-8x22b", 140_620_634_112),
    ],
)
def test_parameters_are_exact(name: str, parameters: int) -> None:
    assert preset(name).parameters == parameters


def test_gpt2_is_the_published_size() -> None:
    assert preset("gpt2-1.5b").parameters == 1_557_611_200


@pytest.mark.parametrize(("s", "h"), [(2048, 12288), (1024, 1600)])
def test_classic_block_flops_are_24_s_h2_times_1_plus_s_over_6h(s: int, h: int) -> None:
    model = classic("x", 2, h, 16, s, 50257, "fp16")
    assert model.block_flops == pytest.approx(24 * s * h**2 * (1 + s / (6 * h)), rel=1e-12)


def test_grouped_query_and_gated_flops() -> None:
    model = preset("llama3-8b")  # h 4096, kv 1024, f 14336, s 8192
    s, h = 8192, 4096
    products = 2 * s * (h * h + 2 * h * 1024 + h * h + 3 * h * 14336)
    assert model.block_flops == products + 4 * s * s * h
    assert model.head_flops == 2 * s * h * 128256


@pytest.mark.parametrize("model", PRESETS.values(), ids=list(PRESETS))
def test_layers_are_embedding_blocks_head(model: Transformer) -> None:
    layers = model.layers()
    assert [layer.kind for layer in layers] == ["embedding", *["block"] * model.blocks, "head"]
    held = sum(layer.parameters for layer in layers)
    assert held - model.parameters == (model.vocab * model.hidden if model.tied else 0)
    assert 3 * sum(layer.forward_flops_per_sequence for layer in layers) == model.flops_per_sequence


def test_names_are_forgiving_and_unknown_ones_listed() -> None:
    assert preset("Llama-2-70B") is preset("llama2_70b")
    with pytest.raises(UsageError, match="llama3-405b"):
        preset("llama9")


@pytest.mark.parametrize(
    "wrong", [{"heads": 7}, {"kv_heads": 5}, {"blocks": 0}], ids=["heads", "kv_heads", "blocks"]
)
def test_impossible_shapes_are_refused(wrong: dict[str, int]) -> None:
    shape = {"blocks": 2, "hidden": 64, "heads": 8, "kv_heads": 2, "ffn": 128, "seq": 16, "vocab": 100}
    with pytest.raises(UsageError):
        Transformer("x", gated=True, **(shape | wrong))
