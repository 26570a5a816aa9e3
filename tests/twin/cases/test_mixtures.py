"""Rows of `twin estimate` about mixtures of experts."""

import pytest

from twin.cases import table_reader
from twin.cases.answer import answer, explain
from twin.cases.case import Case, summary
from twin.cases.column_definitions import BadCellError
from twin.cases.resolve import resolve
from twin.costs.memory import WORKSPACE_BYTES

MIXTRAL = {
    "gpu_model": "H100", "gpus": "128", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8",
    "ffn": "14336", "vocab": "256000", "seq": "4096", "tp": "2", "pp": "4", "experts": "8", "ep": "4",
    "micro_batch": "1", "global_batch": "1024", "recompute": "none", "zero": "1", "sequence_parallel": "yes",
}  # fmt: skip
"""Megatron-LM's regression run mixtral_8x7b_alltoall_tp2pp4ep4_release."""


def one(**cells: str) -> Case:
    return resolve(table_reader.parse(cells))


def test_states_of_the_recorded_run() -> None:
    """Its last rank allocates 17.70e9 bytes between iterations (mem-allocated-bytes of the H100 record). Per
    GPU 692 M parameters are those of dp 16, 1,409 M of the four ranks with the same experts."""
    h, f, v = 4096, 14336, 256000
    dense = (8 * (2 * h * h + 2 * h * h // 4 + 2 * h + 8 * h) + v * h + h) / 2
    experts = 8 * 8 * 3 * h * f / 2 / 4
    assert (dense, experts) == (pytest.approx(692e6, rel=1e-3), pytest.approx(1409e6, rel=1e-3))
    states = dense * (6 + 12 / 16) + experts * (6 + 12 / 4)
    stored = 2 * 4096 * h * 4 / 2 + 2 * 4096 * 2.5 * h / 2 + 2 * 2 * 4096 * (h + 4 * f / 2 + h / 2)
    head = (2 * 2 * h + 5 * v) * 4096 / 2
    found = explain(one(**MIXTRAL)).peak_bytes[-1] - WORKSPACE_BYTES
    assert found == pytest.approx(states + 8 * stored + head, abs=2)
    assert states / 17.70e9 - 1 == pytest.approx(0, abs=0.025)


def test_the_case_says_what_it_took() -> None:
    told = summary(one(**MIXTRAL, shared_ffn="1024", moe_every="2", moe_first="1", expert_imbalance="1.25"))
    assert {name: told[name] for name in ("experts", "top_k", "expert_ffn", "shared_ffn")} == {
        "experts": 8, "top_k": 2, "expert_ffn": 14336, "shared_ffn": 1024,
    }  # fmt: skip
    assert [told[name] for name in ("moe_every", "moe_first", "expert_imbalance", "ep")] == [2, 1, 1.25, 4]
    assert "experts" not in summary(one(layers="4", hidden="1024", global_batch="4"))


def test_experts_are_gated_whatever_their_width() -> None:
    made = one(layers="4", hidden="1024", global_batch="4", experts="4", top_k="1").model
    assert made is not None and made.gated and not made.bias and not made.tied
    assert made.experts is not None and made.experts.ffn == 4096


def test_an_uneven_router_costs_time_and_memory() -> None:
    even, uneven = (answer(one(**MIXTRAL, expert_imbalance=each)) for each in ("1", "1.5"))
    assert uneven.iter_s > even.iter_s
    assert even.peak_mem_bytes is not None and uneven.peak_mem_bytes is not None
    assert uneven.peak_mem_bytes > even.peak_mem_bytes
    assert even.mfu is not None and uneven.mfu is not None and even.mfu > uneven.mfu


@pytest.mark.parametrize(
    ("more", "column", "words"),
    [
        ({"ep": "3"}, "ep", "ep 3 does not divide 8 experts"),
        ({"ep": "8", "gpus": "96", "global_batch": "1200"}, "ep", "ep 8 does not divide the 12 ranks"),
        ({"experts": "", "ep": "4"}, "ep", "needs a model with experts"),
        ({"experts": "", "ep": "", "top_k": "2"}, "top_k", "belongs to a mixture: give experts"),
        ({"top_k": "9"}, "experts", "cannot pass 9 of 8 experts"),
        ({"experts": "1", "ep": "", "top_k": "1"}, "experts", "1 experts are no mixture"),
        ({"expert_imbalance": "0.5"}, "expert_imbalance", "no less than the mean"),
    ],
)
def test_rows_that_cannot_be(more: dict[str, str], column: str, words: str) -> None:
    with pytest.raises(BadCellError, match=words) as caught:
        one(**MIXTRAL | more)
    assert caught.value.column == column
