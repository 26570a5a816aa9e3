"""Rows of `twin estimate` whose stages have several GPU models."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
from twin.cases import table_reader
from twin.cases.answer import Answer, answer, explain
from twin.cases.case import Case, summary
from twin.cases.column_definitions import BadCellError
from twin.cases.resolve import resolve
from twin.core.gpu_models import preset

ROW = {
    "layers": "8", "hidden": "4096", "ffn": "11008", "global_batch": "16", "pp": "2", "tp": "8",
    "dtype": "bf16",
}  # fmt: skip


def _case(**more: str) -> Case:
    return resolve(table_reader.parse({**ROW, **more}))


def _answer(**more: str) -> Answer:
    return answer(_case(**more))


def test_every_stage_takes_the_time_of_its_own_gpu() -> None:
    mixed = explain(_case(gpu_models="A100-80;H100"))
    old, new = (explain(_case(gpu_model=name)) for name in ("A100-80", "H100"))
    assert [int(t) for t in mixed.timing.tf[:, 0]] == [int(old.timing.tf[0, 0]), int(new.timing.tf[1, 0])]
    assert new.answer.iter_s < mixed.answer.iter_s < old.answer.iter_s
    assert mixed.answer.interval == "extrapolated GPU" and old.answer.interval == "extrapolated scale"


def test_equal_entries_are_one_model() -> None:
    assert _answer(gpu_models="a100;A100-80") == _answer(gpu_model="A100-80")


def test_nodes_hold_one_model_and_the_slower_adapter_paces_a_boundary() -> None:
    """Two stages of 4 GPUs lie in one node of 8 A100; beside H100 each has nodes of its own."""
    alone, mixed = explain(_case(tp="4")), explain(_case(tp="4", gpu_models="A100-80;H100"))
    message_bits = 8 * 2048 * 4096 * 2
    assert alone.timing.of[0, 0] == pytest.approx(message_bits / (4 * 2.4e12) * 1e9, abs=2)
    assert mixed.timing.of[0, 0] == pytest.approx(message_bits / (4 * 200e9) * 1e9, abs=2)


def test_memory_mfu_and_energy_are_those_of_each_gpu() -> None:
    """What fits into an H100 does not fit into a T4 beside it."""
    shape = {"layers": "48", "hidden": "5120", "ffn": "13824", "zero": "1"}
    assert _answer(gpu_models="H100;A100-80", **shape).fits
    assert _answer(gpu_models="H100;T4", **shape).fits is False
    assert _answer(gpu_models="T4;H100", **shape).fits is False
    mixed = _answer(gpu_models="A100-80;H100")
    peak = 8 * (preset("A100-80").peak_flops + preset("H100").peak_flops)
    case = _case(gpu_models="A100-80;H100")
    assert case.model is not None and mixed.mfu is not None
    assert mixed.mfu == pytest.approx(case.model.flops_per_sequence * 16 / (mixed.iter_s * peak))
    assert summary(case)["gpu_models"] == "A100-80;H100"


def test_one_entry_a_domain() -> None:
    wan = {"pp": "4", "domains": "a-a-b-b", "wan_bps": "10e9"}
    kinds = [site.gpu.name for site in _case(gpu_models="V100;H100", **wan).of_stages]
    assert kinds == ["V100-32", "V100-32", "H100", "H100"]


@pytest.mark.parametrize(
    ("more", "column", "words"),
    [
        ({"gpu_models": "A100-80;H100;T4"}, "gpu_models", "3 entries for 2 stages in 1 domains"),
        ({"gpu_models": "A100-80;H100", "gpu_model": "H100"}, "gpu_models", "empty that cell or this"),
        ({"gpu_models": "A100-80;H900"}, "gpu_models", "H900.*is not known.*nearest"),
    ],
)
def test_lists_that_cannot_be(more: dict[str, str], column: str, words: str) -> None:
    with pytest.raises(BadCellError, match=words) as found:
        _case(**more)
    assert found.value.column == column


def test_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(f"{','.join(ROW)},gpu_models\n{','.join(ROW.values())},A100-80;H100\n", encoding="utf-8")
    result = CliRunner().invoke(cli.twin, ["estimate", str(path), "--json"])
    (row,) = json.loads(result.output)["rows"]
    assert row["iter_s"] == _answer(gpu_models="A100-80;H100").iter_s
