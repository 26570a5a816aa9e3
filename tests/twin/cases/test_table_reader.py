from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from twin.cases import table_reader
from twin.cases.case import Case
from twin.cases.column_definitions import BadCellError
from twin.cases.resolve import resolve


def table(tmp_path: Path, text: str, name: str = "cases.csv") -> table_reader.Table:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return table_reader.read(path)


def one(**cells: str) -> Case:
    """The case of one row of text cells."""
    return resolve(table_reader.parse(cells))


SHAPE = {"layers": "24", "hidden": "2048", "global_batch": "64"}


def test_a_bad_cell_spoils_only_its_row(tmp_path: Path) -> None:
    found = table(tmp_path, "\ufefflayers,hidden,global_batch\n24,2048,8\n24,wide,8\n\n24,2048,1e1\n")
    assert [(row.number, row.line) for row in found.rows] == [(1, 2), (3, 5)]
    assert found.rows[1].cells["global_batch"] == 10
    (bad,) = found.failures
    assert bad.describe(found.path) == f"{found.path}:3 hidden: 'wide' is not a number"


def test_yaml_and_csv_say_the_same(tmp_path: Path) -> None:
    as_csv = table(tmp_path, "case,pp,stage_forward_s\na,2,0.1;0.2\n")
    as_yaml = table(
        tmp_path, "cases:\n- case: a\n  pp: 2\n  stage_forward_s: [0.1, 0.2]\n  dp:\n", "cases.yaml"
    )
    assert as_yaml.rows[0].cells == as_csv.rows[0].cells
    assert as_yaml.rows[0].line == 2


@pytest.mark.parametrize(
    ("header", "says"),
    [("layers,hiden", "hiden: unknown column; did you mean 'hidden'"), ("tp,tp", "appears twice")],
)
def test_an_unknown_column_stops_the_table(tmp_path: Path, header: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        table(tmp_path, f"{header}\n1,1\n")


@pytest.mark.parametrize("text", ["", "\n\n", "layers,hidden\n"])
def test_an_empty_table_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        table(tmp_path, text)


def test_more_cells_than_columns_is_a_bad_row(tmp_path: Path) -> None:
    found = table(tmp_path, "pp,stage_forward_s\n2,0.1,0.2\n")
    assert "separate list entries by `;`" in found.failures[0].message


@pytest.mark.parametrize(
    ("cells", "column", "way_out"),
    [
        ({"gpus": "16", "tp": "4", "pp": "3"}, "gpus", "leave dp empty"),
        ({"global_batch": "10", "micro_batch": "4"}, "global_batch", "is not a multiple"),
        ({"micro_batches": "3"}, "micro_batches", "leave one empty"),
        ({"hidden": ""}, "hidden", "stage_forward_s"),
        ({"heads": "7"}, "heads", "not divisible"),
        ({"pp": "4", "cuts": "6-6-6"}, "cuts", "3 entries for 4 stages"),
        ({"pp": "2", "cuts": "6-6"}, "cuts", "the model has 24 layers"),
        ({"pp": "2", "domains": "2"}, "wan_bps", "give the bandwidth"),
        ({"pp": "2", "domains": "3"}, "domains", "raise pp"),
        ({"pp": "3", "stage_forward_s": "0.1;0.2"}, "stage_forward_s", "2 entries for 3 stages"),
        ({"gpu_model": "A101"}, "gpu_model", "known:"),
        ({"schedule": "1f1"}, "schedule", "did you mean '1f1b'"),
        ({"tp": "-1"}, "tp", "must be 1 to 1,000,000"),
        ({"tp": "1.5"}, "tp", "whole number"),
        ({"wan_bps": "1,5e9"}, "wan_bps", "not a number"),
        ({"seq": "nan"}, "seq", "finite"),
        ({"zero": "4"}, "zero", "must be 0 to 3"),
    ],
)
def test_a_contradiction_names_the_column_and_the_way_out(
    cells: dict[str, str], column: str, way_out: str
) -> None:
    with pytest.raises(BadCellError, match=way_out) as raised:
        one(**{**SHAPE, **cells})
    assert raised.value.column == column


def test_defaults() -> None:
    case = one(**SHAPE)
    assert case.model is not None and case.job is not None
    assert (case.site.gpu.name, case.gpus, case.site.gpus_per_node) == ("A100-80", 1, 8)
    assert (case.model.heads, case.model.kv_heads, case.model.ffn) == (16, 16, 8192)
    assert (case.model.seq, case.model.vocab, case.model.dtype) == (2048, 51200, "bf16")
    assert (case.job.recompute, case.job.zero, case.schedule, case.p2p) == ("full", 0, "1f1b", "blocking")
    assert (case.counts, case.domains, case.micro_batches) == ((26,), (0,), 64)
    assert "heads" in case.defaults and "layers" not in case.defaults


def test_mlp_and_key_value_heads_choose_the_family() -> None:
    gpt, llama = one(**SHAPE, ffn="8192").model, one(**SHAPE, ffn="5504", kv_heads="4").model
    plain = one(**SHAPE, kv_heads="4").model
    assert plain is not None
    assert (plain.gated, plain.bias, plain.tied, plain.attention) == (False, False, False, "flash")
    assert gpt is not None and llama is not None
    assert (gpt.gated, gpt.bias, gpt.attention) == (False, True, "materialised")
    assert (llama.gated, llama.bias, llama.attention) == (True, False, "flash")
    new = one(**SHAPE, gpu_model="H100").model
    old = one(**SHAPE, gpu_model="V100").model
    assert new is not None and new.attention == "flash"
    assert old is not None and old.dtype == "fp16"


@pytest.mark.parametrize(
    ("cells", "domains", "wan"),
    [
        ({"domains": "2", "wan_bps": "1e9"}, (0, 0, 1, 1), (None, (1e9, 0.0), None)),
        ({"domains": "3", "wan_bps": "1e9;2e9"}, (0, 1, 2, 2), ((1e9, 0.0), (2e9, 0.0), None)),
        ({"domains": "a-b-b-a", "wan_bps": "1e9"}, (0, 1, 1, 0), ((1e9, 0.0), None, (1e9, 0.0))),
        ({"domains": "1-3", "wan_bps": "1e9"}, (0, 1, 1, 1), ((1e9, 0.0), None, None)),
        ({"wan_bps": "1e9", "wan_latency_s": "0.1"}, (0, 0, 1, 1), (None, (1e9, 0.1), None)),
        ({"wan_bps": "0;1e9;0"}, (0, 0, 1, 1), (None, (1e9, 0.0), None)),
        ({"wan_bps": "5e8;1e9;2e9", "domains": "2"}, (0, 0, 1, 1), (None, (1e9, 0.0), None)),
        ({}, (0, 0, 0, 0), (None, None, None)),
    ],
)
def test_which_boundaries_are_wide_area(
    cells: dict[str, str], domains: tuple[int, ...], wan: tuple[object, ...]
) -> None:
    case = one(**SHAPE, pp="4", **cells)
    assert case.domains == domains
    assert case.wan == wan


def test_measured_boundaries_say_where_the_domains_end() -> None:
    case = one(
        micro_batches="4", stage_forward_s="0.1;0.1;0.1", stage_backward_s="0.2",
        boundary_transfer_s="0;0.01", boundary_latency_s="0;0.03",
    )  # fmt: skip
    assert (case.pp, case.model, case.domains) == (3, None, (0, 0, 1))
    assert case.measured.backward_s == (0.2, 0.2, 0.2)


@pytest.mark.parametrize(("cuts", "counts"), [("7-7-6-10", (8, 7, 6, 11)), ("8-7-6-11", (8, 7, 6, 11))])
def test_cuts_count_embedding_and_head_or_not(cuts: str, counts: tuple[int, ...]) -> None:
    assert one(**{**SHAPE, "layers": "30", "pp": "4", "cuts": cuts}).counts == counts


def test_layers_divide_with_the_rest_in_the_last_stages() -> None:
    assert one(**{**SHAPE, "layers": "26", "pp": "4"}).counts == (7, 6, 7, 8)


def test_gpus_give_dp() -> None:
    assert one(**SHAPE, gpus="64", tp="4", pp="2").dp == 8
