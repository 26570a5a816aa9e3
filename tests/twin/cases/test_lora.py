"""Rows of `twin estimate` about LoRA."""

import pytest

from twin.cases import table_reader
from twin.cases.answer import Answer, answer
from twin.cases.case import summary
from twin.cases.column_definitions import BadCellError
from twin.cases.resolve import resolve

SHAPE = {
    "gpu_model": "H100", "layers": "16", "hidden": "4096", "kv_heads": "8", "ffn": "14336", "dp": "4",
    "global_batch": "16", "recompute": "none",
}  # fmt: skip


def ask(**more: str) -> Answer:
    return answer(resolve(table_reader.parse(SHAPE | more)))


def test_adapters_take_less_time_and_memory_than_the_model() -> None:
    whole, adapted = ask(), ask(lora_rank="16")
    beside = [one.iter_s - one.exposed_comm_s for one in (adapted, whole)]
    assert 0.5 < beside[0] / beside[1] < 0.75  # 4 FLOPs instead of 6, no gradients, almost no update
    assert whole.peak_mem_bytes is not None and adapted.peak_mem_bytes is not None
    assert adapted.peak_mem_bytes < whole.peak_mem_bytes / 2
    assert adapted.exposed_comm_s < whole.exposed_comm_s / 100
    assert whole.mfu is not None and adapted.mfu is not None
    done = adapted.mfu * adapted.iter_s / (whole.mfu * whole.iter_s)
    assert 2 / 3 < done < 0.72  # the attention core costs what it did


def test_a_larger_rank_costs_more_and_local_sgd_exchanges_adapters_alone() -> None:
    small, large = (ask(lora_rank=rank, lora_targets="q;k;v;o;gate;up;down") for rank in ("8", "256"))
    assert small.iter_s < large.iter_s
    copies = {"replicas": "2", "wan_bps": "1e9", "global_batch": "32", "lora_rank": "8"}
    assert ask(**copies).wan_bytes == 2 * 1 * 16 * 8 * (4 * 4096 - 4096 + 1024) * 4


def test_the_case_names_them() -> None:
    told = summary(resolve(table_reader.parse(SHAPE | {"lora_rank": "8", "lora_targets": "Q; V"})))
    assert (told["lora_rank"], told["lora_targets"]) == (8, "q;v")


@pytest.mark.parametrize(
    ("more", "column", "words"),
    [
        ({"lora_targets": "q"}, "lora_targets", "need a rank"),
        ({"lora_rank": "8", "lora_targets": "w1"}, "lora_targets", "no matrix is called 'w1'"),
        ({"lora_rank": "2000"}, "lora_targets", "rank 2000 is not between"),
        ({"lora_rank": "8", "lora_targets": "up", "experts": "4"}, "lora_targets", "experts have no model"),
        ({"lora_rank": "0"}, "lora_rank", "0"),
    ],
)
def test_rows_that_cannot_be(more: dict[str, str], column: str, words: str) -> None:
    with pytest.raises(BadCellError, match=words) as caught:
        resolve(table_reader.parse(SHAPE | more))
    assert caught.value.column == column
