"""Perseus: time and energy of pipeline stages against the clock, of whole iterations, and under power limits.

* `<model>+<gpu>_<dtype>.csv`: `stage,instruction,frequency,time,energy` of one micro-batch (MHz, s, J).
* `<gpu>_<parallelism>_<model>_<plan>.prof.json`: a list of ranks with time and energy of every iteration, and
  the time of every forward, backward and load in it. The first iteration warms up and is left out.
* CSV with `power_limit_0...,time,energy`: one iteration under power limits of the stages.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import Source

_STAGES = ["stage", "instruction", "frequency", "time", "energy"]
_STAGE_NAME = re.compile(r"(.+)\+(.+?)_(bf16|fp16|fp32|tf32)\.csv")
_LIMITS = {"model_name", "dp", "tp", "pp", "power_limit_0", "time", "energy"}
_RUN_NAME = re.compile(r"([^_]+)_([^_]+)_(.+)_(\d{1,6})\.prof\.json")
_DIRECTIONS = ("forward", "backward")


def _direction(cell: str) -> str:
    if cell.strip() not in _DIRECTIONS:
        raise ValueError(cell)
    return cell.strip()


def _all_directions(column: pa.Array) -> pa.Array:
    if not pc.all(pc.is_in(column, pa.array(_DIRECTIONS))).as_py():
        raise pa.ArrowInvalid("some instructions are unknown")
    return column


_STAGE_COLUMNS = (
    cell_conversion.text("layer", "stage"),
    ColumnMapping(
        "_what", "instruction", pa.string(), _all_directions, _direction, pa.string(),
        "neither forward nor backward",
    ),
    cell_conversion.number("clock_mhz", "frequency"),
    cell_conversion.number("_time_s", "time"),  # s
    cell_conversion.number("energy_j", "energy"),  # J
)  # fmt: skip


class Perseus:
    """Stage profiles, measured iterations and power limits."""

    name = "perseus"
    version = 1
    by_name = True
    tables = ("layer_profiles", "step_times", "op_times")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True if it has the header of one of the two tables, or is a list of ranks with `iter_time`."""
        names = csv_blocks.header(head)
        measured = path.name.endswith(".prof.json") and b'"iter_time"' in head
        return names == _STAGES or set(names) >= _LIMITS or measured

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each instruction and clock, or for each iteration and operation of a rank."""
        names = csv_blocks.header(source.head)
        if names == _STAGES:
            yield from csv_blocks.side_by_side(source, lambda block: _stages(source, block))
        elif set(names) >= _LIMITS and len(set(names)) == len(names):
            yield from csv_blocks.side_by_side(source, lambda block: _limits(source, block, names))
        elif source.path.name.endswith(".prof.json"):
            yield from from_document(source, "step_times", lambda ranks: _run(ranks, source))
        else:
            raise InputError(f"{source.shown}: not a profile of Perseus")

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "perseus: the first iteration of a run warms up and is left out, with its operations",
            "perseus: forward and backward include waiting inside the instruction, and recomputation",
            "perseus: gpus is the number of ranks; energy of a measured iteration is of the one rank, "
            "energy under power limits is of all of them",
        )


def _stages(source: Source, block: csv_blocks.Block) -> RowBatch:
    named = _STAGE_NAME.fullmatch(source.path.name)
    constants = {"model": named[1], "gpu_model": named[2]} if named else {"model": source.path.stem}
    batch = cell_conversion.Typed("layer_profiles", _STAGES, _STAGE_COLUMNS, constants)(block)
    columns = dict(batch.columns)
    what, time_s = columns.pop("_what"), columns.pop("_time_s")
    columns["layer"] = pc.binary_join_element_wise("stage", columns["layer"].cast(pa.string()), " ")
    for direction in _DIRECTIONS:
        columns[f"{direction}_s"] = pc.if_else(pc.equal(what, direction), time_s, None)
    return replace(batch, columns=columns)


def _limits(source: Source, block: csv_blocks.Block, names: list[str]) -> RowBatch:
    limits = [name for name in names if re.fullmatch(r"power_limit_\d{1,3}", name)]
    columns = [cell_conversion.number("time_s", "time"), cell_conversion.number("energy_j", "energy")]  # s, J
    columns += [cell_conversion.whole(f"_{name}", name) for name in ("dp", "tp", "pp")]
    columns += [
        cell_conversion.text("_model", "model_name"),
        *(cell_conversion.text(f"_{name}", name) for name in limits),
    ]
    constants = {"kind": "step", "gpu_model": source.path.name.split("_")[0]}
    batch = cell_conversion.Typed("step_times", names, columns, constants)(block)
    made = dict(batch.columns)
    sizes = [made.pop(f"_{name}") for name in ("dp", "tp", "pp")]
    watts = [made.pop(f"_{name}").cast(pa.string()) for name in limits]
    plan = [
        pc.binary_join_element_wise(n, s.cast(pa.string()), "")
        for n, s in zip(("dp", "tp", "pp"), sizes, strict=True)
    ]
    parts = [made.pop("_model").cast(pa.string()), *plan, pc.binary_join_element_wise(*watts, "/"), "W"]
    gpus = pc.multiply_checked(pc.multiply_checked(sizes[0], sizes[1]), sizes[2])
    job = pc.binary_join_element_wise(*parts, " ", null_handling="replace", null_replacement="?")
    return replace(batch, columns={**made, "gpus": gpus, "job": job})


def _run(ranks: list[dict[str, Any]], source: Source) -> Iterator[RowBatch]:
    named = _RUN_NAME.fullmatch(source.path.name)
    gpu, job = (named[1], f"{named[3]} {named[2]} plan {named[4]}") if named else (None, source.path.stem)
    steps = RowBuilder(
        "step_times", ("worker", "step", "time_s", "energy_j"),
        job=job, gpu_model=gpu, gpus=len(ranks), kind="step",
    )  # fmt: skip
    operations = RowBuilder(
        "op_times", ("worker", "stage", "step", "op", "micro_batch_id", "time_s"), job=job
    )
    for rank in ranks:
        worker = str(whole(rank["rank"]))
        measured = zip(rank["iter_time"], rank["iter_energy"], strict=True)
        for step, (time_s, energy_j) in enumerate(measured):
            if step:
                steps.take(len(steps) + 1, "iter_time", time_s, _iteration, worker, step, time_s, energy_j)
        _operations(operations, worker, rank.get("time_breakdown", {}))
    yield steps.batch()
    yield operations.batch()


def _operations(rows: RowBuilder, worker: str, breakdown: dict[str, Any]) -> None:
    """Every operation of every iteration but the first of one rank."""
    for operation, iterations in breakdown.items():
        for step, times in enumerate(iterations):
            for at, time_s in enumerate(times if step else ()):
                rows.take(len(rows) + 1, operation, time_s, _operation, worker, step, operation, at, time_s)


def _iteration(worker: str, step: int, time_s: Any, energy_j: Any) -> tuple[Any, ...]:
    return worker, step, amount(time_s), amount(energy_j)  # s, J


def _operation(worker: str, step: int, operation: str, at: int, time_s: Any) -> tuple[Any, ...]:
    return worker, int(worker), step, operation, at, amount(time_s)  # s; a rank is a stage
