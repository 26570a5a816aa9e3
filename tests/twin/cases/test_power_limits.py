"""Rows of `twin estimate` under limits of power and clock."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
from twin.cases import table_reader
from twin.cases.answer import answer
from twin.cases.case import summary
from twin.cases.column_definitions import BadCellError
from twin.cases.resolve import resolve

SHAPE = {"gpu_model": "H100", "layers": "8", "hidden": "8192", "ffn": "28672", "global_batch": "8"}


def test_a_limit_costs_time_and_saves_energy() -> None:
    free, capped = (
        answer(resolve(table_reader.parse({**SHAPE, **more}))) for more in ({}, {"power_cap_w": "450"})
    )
    assert 1.05 < capped.iter_s / free.iter_s < 1 / 0.85  # clock 0.84; passes over memory keep their pace
    assert capped.energy_j < free.energy_j
    assert free.mfu is not None and capped.mfu is not None and capped.mfu < free.mfu
    loose = answer(resolve(table_reader.parse({**SHAPE, "power_cap_w": "700"})))
    assert (loose.iter_s, loose.energy_j) == (free.iter_s, free.energy_j)


def test_the_option_is_the_cell_of_rows_without_one(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    row = ",".join(SHAPE.values())
    path.write_text(f"{','.join(SHAPE)},power_cap_w\n{row},\n{row},300\n", encoding="utf-8")
    arguments = ["estimate", str(path), "--json"]
    plain, capped = (
        json.loads(CliRunner().invoke(cli.twin, [*arguments, *more]).output)["rows"]
        for more in ([], ["--power-cap-w", "450"])
    )
    assert capped[0]["iter_s"] > plain[0]["iter_s"] and capped[1] == plain[1]
    refused = CliRunner().invoke(cli.twin, [*arguments, "--power-cap-w", "much"])
    assert str(refused.exception) == "--power-cap-w: 'much' is not a number"
    below = CliRunner().invoke(cli.twin, [*arguments, "--power-cap-w", "60"])
    failed = json.loads(below.stdout)["failed"]
    assert [one["row"] for one in failed] == [1] and "draws 75 W idle" in failed[0]["message"]


def test_the_case_names_the_clock() -> None:
    told = summary(resolve(table_reader.parse({**SHAPE, "clock_cap": "0.8"})))
    assert told["clock under these"] == 0.8
    assert "clock_cap" not in summary(resolve(table_reader.parse(SHAPE)))


@pytest.mark.parametrize("more", [{"power_cap_w": "0"}, {"clock_cap": "0.1"}, {"clock_cap": "1.2"}])
def test_cells_that_cannot_be(more: dict[str, str]) -> None:
    with pytest.raises(BadCellError):
        table_reader.parse(more)
