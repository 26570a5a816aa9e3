import pytest

from twin.core.model_presets import preset
from twin.core.transformer import classic
from twin.costs import memory
from twin.pipeline.pipeline import warmup_depths

S, H, A = 2048, 12288, 96
GPT3 = classic("gpt3", 96, H, A, S, 50257, "fp16")


def test_the_gpt3_case_activations_are_464_gb_by_their_own_formula() -> None:
    # B s d (L / k) 2 with B 1536, s 2048, d 12288, L 96, k 16; the document prints 360 GB
    activations = 1536 * 2048 * 12288 * (96 // 16) * 2
    assert activations == pytest.approx(464e9, rel=0.001)


def test_states_per_parameter() -> None:
    assert memory.state_bytes_per_parameter(0, 8) == 18
    assert memory.state_bytes_per_parameter(1, 8) == 6 + 12 / 8
    assert memory.state_bytes_per_parameter(2, 8) == 2 + 16 / 8
    assert memory.state_bytes_per_parameter(3, 8) == 18 / 8
    assert {memory.state_bytes_per_parameter(zero, 1) for zero in range(4)} == {18}


def test_states_of_fp16_have_gradients_twice() -> None:
    """Megatron's table: 20, with the distributed optimiser 4 + 16/d."""
    found = [memory.state_bytes_per_parameter(zero, 8, "fp16") for zero in range(4)]
    assert found == [20, 4 + 16 / 8, 2 + 18 / 8, 20 / 8]
    assert memory.state_bytes_per_parameter(1, 8, "fp32") == 8 + 8 / 8


def test_workspaces_of_two_handles_lie_in_the_allocator() -> None:
    assert memory.workspace_bytes("A100-80") == 2 * (2 * 4096 + 8 * 16) * 1024
    assert memory.workspace_bytes("H200") == 64 * 2**20


def test_classic_block_follows_korthikanti_table_2() -> None:
    def stored(tp: int, mode: str, sequence_parallel: bool) -> float:
        return memory.block_activation_bytes(GPT3, tp, mode, sequence_parallel)  # type: ignore[arg-type]

    assert stored(1, "none", False) == pytest.approx(S * H * (34 + 5 * A * S / H), rel=1e-12)
    assert stored(8, "none", False) == pytest.approx(S * H * (10 + 24 / 8 + 5 * A * S / (H * 8)), rel=1e-12)
    assert stored(8, "none", True) == pytest.approx(S * H * (34 + 5 * A * S / H) / 8, rel=1e-12)
    assert stored(8, "selective", True) == pytest.approx(34 * S * H / 8, rel=1e-12)
    assert stored(1, "full", False) == 2 * S * H
    assert stored(8, "full", True) == 2 * S * H / 8


def test_flash_attention_stores_no_matrices_and_grouped_queries_store_fewer_keys() -> None:
    model = preset("llama3-8b")  # h 4096, f 14336 = 3.5 h, kv h/4
    # norms 4, inputs of the projections 4, queries and output 4, keys and values 1, MLP 8 * 3.5
    assert memory.block_activation_bytes(model, 1, "none", False) == 8192 * 4096 * (4 + 4 + 4 + 1 + 28)
    assert memory.block_activation_bytes(model, 1, "selective", False) == memory.block_activation_bytes(
        model, 1, "none", False
    )


@pytest.mark.parametrize("m", [1, 3, 16])
def test_in_flight(m: int) -> None:
    stages = 4
    depths = warmup_depths(stages, m)
    flight = [memory.in_flight(int(w), m, "1f1b") for w in depths]
    assert flight == [min(m, stages - i) for i in range(stages)]
    assert [memory.in_flight(int(w), m, "gpipe") for w in depths] == [m] * stages
