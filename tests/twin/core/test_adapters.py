"""LoRA's adapters: parameters and FLOPs by hand, and adapters that cannot be."""

from dataclasses import replace

import pytest

from ingest.core.errors import UsageError
from twin.core.adapters import Adapters
from twin.core.job import JobSpec
from twin.core.model_presets import preset

LLAMA = preset("llama3-8b")  # hidden 4,096, keys and values 1,024 wide, MLP 14,336, 32 blocks
H, KV, F, S, V = 4096, 1024, 14336, 8192, 128256


def test_parameters_and_flops_by_hand() -> None:
    made = replace(LLAMA, adapters=Adapters(16, ("q", "v", "down")))
    each = 16 * (2 * H + H + KV + F + H)
    assert made.adapter_parameters == each
    assert made.trained_parameters == 32 * each
    assert made.parameters == LLAMA.parameters + 32 * each
    assert [layer.trained for layer in made.layers()] == [0, *[each] * 32, 0]
    matrices = 32 * (2 * H * H + 2 * H * KV + 3 * H * F) + H * V
    # forward and input gradient of every matrix; the core three times, adapters three times
    assert made.flops_per_sequence == pytest.approx(
        2 * 2 * S * matrices + 32 * (3 * 4 * S * S * H + 3 * 2 * S * each), rel=1e-12
    )
    assert LLAMA.flops_per_sequence == pytest.approx(3 * 2 * S * matrices + 32 * 3 * 4 * S * S * H, rel=1e-12)


def test_queries_and_values_are_the_usual_targets() -> None:
    """Hu et al. 2021, table 6: r (2 x 4,096 + 4,096 + 1,024) a block."""
    assert replace(LLAMA, adapters=Adapters(8)).adapter_parameters == 8 * (2 * H + H + KV)


def test_what_is_frozen_moves_as_weights_alone() -> None:
    made = replace(LLAMA, adapters=Adapters(8))
    job = JobSpec(made, 8)
    assert job.moved_bytes(made.layers()[1]) == 2 * LLAMA.block_parameters + 14 * made.adapter_parameters
    assert JobSpec(LLAMA, 8).moved_bytes(LLAMA.layers()[1]) == 14 * LLAMA.block_parameters


@pytest.mark.parametrize(
    ("model", "adapters", "words"),
    [
        ("llama3-8b", Adapters(8, ("q", "x")), "no matrix is called 'x'"),
        ("llama3-8b", Adapters(8, ()), "at least one"),
        ("llama3-8b", Adapters(8, ("q", "q")), "once"),
        ("llama3-8b", Adapters(0), "rank 0 is not between 1 and the narrowest matrix, 1024"),
        ("llama3-8b", Adapters(2000), "rank 2000 is not between"),
        ("gpt2-1.5b", Adapters(8, ("gate",)), "has no gate"),
        ("mixtral-8x7b", Adapters(8, ("q", "up")), "adapters of experts have no model"),
    ],
)
def test_adapters_that_cannot_be(model: str, adapters: Adapters, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replace(preset(model), adapters=adapters)
