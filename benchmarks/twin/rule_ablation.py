"""Each rule of the cost models switched off: mean error per data set. Used by fidelity.py.

A rule is switched off in the cells of the rows, as a user would do it; a row whose cells do not change keeps
its prediction.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.twin.fidelity_tables import Compared, percent, table
from benchmarks.twin.measured_runs import Cells, Run
from twin.core.gpu_models import fabric

BEFORE = {
    "vTrain, 1-8 A100": 0.075,
    "vTrain, 64 and 512 A100": 0.312,
    "Megatron SC'21, 32-3,072 A100": 0.026,
    "Megatron 2020, V100 and A100": 0.040,
    "Megatron golden runs": 0.357,
    "MLPerf GPT-3 175B": 0.503,
    "H100, PyTorch data parallel": 0.060,
    "H200, our own iterations": 0.084,
    "Perseus, measured stage times": 0.029,
    "ByteDance, measured stage times": 0.059,
    "Megatron golden runs: peak": 0.134,
    "Galvatron: peak of 1 and 2 layers, fully sharded": 0.093,
    "H200, our own iterations: peak": 0.043,
}
"""Mean errors of the version before these rules."""


def one_ring(cells: Cells) -> Cells:
    """A tensor group over nodes is one ring at the speed of one adapter."""
    usual = fabric(cells["gpu_model"])
    if "tp" not in cells or int(cells["tp"]) <= usual.gpus_per_node:
        return cells
    speed = cells.get("inter_node_bps", str(usual.inter_node_bps))
    return {**cells, "gpus_per_node": cells["tp"], "intra_node_bps": speed}


def whole_sequences(cells: Cells) -> Cells:
    """No sequence parallelism, in time and in memory."""
    return {**cells, "sequence_parallel": "no"} if "sequence_parallel" in cells else cells


def late_reduction(cells: Cells) -> Cells:
    """Gradients are reduced in fp32 when the backward is done, weights gathered before the forward."""
    if cells.get("zero", "0") == "0" and "framework" not in cells:
        return cells
    return {**cells, "overlap_reduction": "no", "gradient_dtype": "fp32"}


def no_masks(cells: Cells) -> Cells:
    """Dropout masks are not kept."""
    return {**cells, "dropout": "no"} if "hidden" in cells else cells


def no_framework(cells: Cells) -> Cells:
    """The framework is not named: memory of its context, type of logits and of gradients as by default."""
    return {name: cell for name, cell in cells.items() if name != "framework"}


def hypotheses(cells: Cells) -> Cells:
    """No overlap of tensor-parallel collectives, and tp 8, pp 6, micro-batch 2, no chunks for 10,752 GPUs."""
    if "tp_overlap" not in cells:
        return cells
    without = {name: cell for name, cell in cells.items() if name != "tp_overlap"}
    if cells["gpus"] != "10752":
        return without
    del without["chunks"]
    return {**without, "tp": "8", "micro_batch": "2"}


RULES: dict[str, Callable[[Cells], Cells]] = {
    "groups over nodes": one_ring,
    "sequence parallelism": whole_sequences,
    "reduction": late_reduction,
    "dropout masks": no_masks,
    "framework": no_framework,
    "published set-up": hypotheses,
}


def without(rule: Callable[[Cells], Cells], one: Compared) -> float:
    """Mean error of a data set with a rule switched off."""
    predicted = []
    for run, found in zip(one.rows, one.predicted, strict=True):
        assert isinstance(run, Run)
        cells = rule(run.cells)
        predicted.append(found if cells == run.cells else replace(run, cells=cells).predict())
    return float(np.mean(np.abs(np.array(predicted) / one.measured - 1)))


def section(sets: Sequence[Compared]) -> list[str]:
    """Mean error per data set: before these rules, with all, and with each switched off."""
    rows: list[Sequence[str]] = []
    for one in sets:
        if isinstance(one.rows[0], Run):
            before = percent(BEFORE[one.title]) if one.title in BEFORE else "new set"
            off = [without(rule, one) for rule in RULES.values()]
            shown = ["=" if np.isclose(error, one.mape) else percent(error) for error in off]
            rows.append([one.title, str(len(one.rows)), before, percent(one.mape), *shown])
    head = ["data set", "rows", "before", "all rules", *(f"without {name}" for name in RULES)]
    return [
        "## Rules of the cost models, one by one",
        "",
        "Mean error before these rules, with all of them, and with each switched off in the cells of the "
        "rows (`benchmarks/twin/rule_ablation.py`; = where it changes nothing). " + " ".join(
            f"Without {name}: {(rule.__doc__ or '').strip().rstrip('.')}." for name, rule in RULES.items()
        ) + " Profiles of the lake are a table of their own, with and without. No table has reduction and "
        "update of measured stages, so that they cannot be switched off here.",
        "",
        *table(head, rows),
    ]  # fmt: skip
