"""`twin calibrate`: constants of the twin from the profiles and telemetry in the lake.

Rows used: products of known FLOPs (benchmarks/twin/operators.py, Aceso-style operators with their
weights, Vidur's projections of a known model), fused attention, blocks measured by `twin profile`,
all-reduces, and GPU power against activity. Other rows stay unused (`twin.calibration.uncalibrated`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.lake import lake
from twin.calibration import least_squares
from twin.calibration.calibration import Calibration, rates_from
from twin.calibration.least_squares import Fit
from twin.calibration.profiled_layers import shape_of
from twin.core import gpu_models
from twin.core.domain import Domain, GpuType
from twin.core.model_presets import preset as known_model
from twin.core.transformer import Transformer
from twin.costs.collectives import Path as Link
from twin.costs.collectives import all_reduce_s
from twin.costs.gpu_rates import Host, built_in_rates, matmul_flops_s
from twin.costs.layer_compute import layer_times
from twin.costs.memory import block_activation_bytes

ACESO_SEQ = 2048
"""Tokens of a sequence in the operator profiles of Aceso and Sailor (their SOURCES)."""
LEAST_ROWS = 8
MATMUL = re.compile(r"matmul-(bf16|fp8)-t(\d+)-n(\d+)-k(\d+)")
FUSED = re.compile(r"attention-b(\d+)-a(\d+)-s(\d+)-d(\d+)")
WEIGHTED = ("enc-attention-qkv", "enc-attention-dense", "enc-MLP-GEMM-1", "enc-MLP-GEMM-2")
"""Operators of one product whose weights the profile states; at tp 1, wider ones re-arrange data as well."""
PROJECTIONS: dict[str, Callable[[Transformer], int]] = {
    "attn_pre_proj": lambda m: m.hidden * (m.hidden + 2 * m.kv_hidden),
    "attn_post_proj": lambda m: m.hidden * m.hidden,
    "mlp_up_proj": lambda m: 2 * m.hidden * m.ffn,
    "mlp_down_proj": lambda m: m.hidden * m.ffn,
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Timed:
    """One timed product or attention: FLOPs, seconds and kind."""

    flops: float
    seconds: float
    kind: str  # product, fp8, attention forward, attention backward


def timed(row: Row) -> Iterator[Timed]:
    """Timed products and attentions of a row of `layer_profiles`."""
    forward, backward, layer = row["forward_s"], row["backward_s"], row["layer"] or ""
    matmul, fused = MATMUL.fullmatch(row["model"] or ""), FUSED.fullmatch(row["model"] or "")
    if matmul and forward:
        t, n, k = map(int, matmul.groups()[1:])
        yield Timed(2.0 * t * n * k, forward, "fp8" if matmul[1] == "fp8" else "product")
    elif fused and forward and backward:
        b, a, s, d = map(int, fused.groups())
        once = 2.0 * b * a * s * s * d
        yield Timed(once, forward, "attention forward")
        yield Timed(2.5 * once, backward, "attention backward")
    elif layer in WEIGHTED and row["param_bytes"] and row["tp"] == 1:
        flops = 2.0 * row["micro_batch"] * (row["seq"] or ACESO_SEQ) * row["param_bytes"] / 2
        yield Timed(flops, forward, "product")
    elif layer in PROJECTIONS and row["seq"] and forward:
        try:
            model = known_model(row["model"])
        except UsageError:
            return
        weights = PROJECTIONS[layer](model) / row["tp"]
        yield Timed(2.0 * row["micro_batch"] * row["seq"] * weights, forward, "product")


def calibrate(store: Path, progress: Progress = SILENT) -> Calibration:
    """Fits of all constants for which the lake has rows.

    Raises:
        NotFoundError: the lake has no row that a constant could be fitted to.
    """
    found = profiles(store)
    kinds = sorted({name for name in map(model_of, found.names()) if name})
    gpus: dict[str, dict[str, Fit]] = {}
    layers: dict[str, dict[str, list[list[float]]]] = {}
    progress.start(len(kinds), "fits", "GPU models")
    for kind in kinds:
        progress.advance(1, kind)
        rows = [row for row in found.layers if model_of(row["gpu_model"]) == kind]
        fitted = {**_rates(kind, rows), **_power(kind, found.power)}
        fitted |= dict(collective_fits(kind, found.collectives))
        if fitted:
            gpus[kind] = fitted
        measured = _blocks(rows)
        if measured:
            layers[kind] = measured
    if not gpus:
        raise NotFoundError(
            f"the lake in {store} has no profile to fit: run `twin ingest shipped` (H200) or ingest your "
            "own, made with `twin profile`"
        )
    return Calibration(lake.digest(store), gpus, layers)


@dataclass(frozen=True, slots=True)
class Profiles:
    """Rows of the lake that constants are fitted to."""

    layers: list[Row]
    collectives: list[Row]
    power: list[Row]

    def names(self) -> set[str]:
        """GPU models as the lake writes them."""
        return {row["gpu_model"] for rows in (self.layers, self.collectives, self.power) for row in rows}


_QUERIES = (
    """SELECT dataset, model, gpu_model, tp, micro_batch, layer, forward_s, backward_s, param_bytes,
    activation_bytes, seq FROM layer_profiles WHERE gpu_model IS NOT NULL AND forward_s > 0 ORDER BY ALL""",
    """SELECT dataset, gpu_model, nodes, ranks, bytes, median(time_s) AS time_s FROM collective_profiles
    WHERE op = 'all_reduce' AND time_s > 0 AND bytes > 0 AND ranks > 1 AND gpu_model IS NOT NULL
    GROUP BY ALL ORDER BY ALL""",
    """SELECT dataset, gpu_model, coalesce(sm_active, util) AS activity, power_w FROM gpu_samples
    WHERE gpu_model IS NOT NULL AND power_w IS NOT NULL AND coalesce(sm_active, util) IS NOT NULL
    AND dataset NOT LIKE 'synthetic-%' ORDER BY dataset, ts, gpu""",
)


def profiles(store: Path) -> Profiles:
    """Rows of the lake that constants can be fitted to."""
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(store) as connection:
        tables: list[list[Row]] = []
        for text in _QUERIES:
            result = connection.execute(text)
            names = [column[0] for column in result.description or ()]
            tables.append([dict(zip(names, row, strict=True)) for row in result.fetchall()])
    return Profiles(*tables)


def model_of(name: str) -> str | None:
    """Canonical name of a GPU model of the lake, None for an unknown one."""
    try:
        return gpu_models.canonical(name)
    except UsageError:
        return None


def _site(kind: str) -> Domain:
    usual = gpu_models.fabric(kind)
    return Domain(
        kind, gpu_models.preset(kind), usual.gpus_per_node, usual.gpus_per_node, usual.intra_node_bps,
        usual.inter_node_bps, usual.intra_node_latency_s, usual.inter_node_latency_s, 0.0,
    )  # fmt: skip


def _rates(kind: str, rows: Sequence[Row]) -> dict[str, Fit]:
    """Products, fp8, fused attention; then the host's floor and stored activations from whole blocks."""
    device, fitted = gpu_models.preset(kind), {}
    every = [one for row in rows for one in timed(row)]
    for name, peak in (
        ("product", device.peak_flops),
        ("fp8", 2 * device.peak_flops),
        ("attention forward", device.peak_flops),
        ("attention backward", device.peak_flops),
    ):
        chosen = [one for one in every if one.kind == name]
        if len(chosen) >= LEAST_ROWS:
            flops, seconds = (
                np.array(column) for column in zip(*((o.flops, o.seconds) for o in chosen), strict=True)
            )
            fit = least_squares.products(flops, seconds, peak, flops / _built_in_flops_s(device, name))
            if fit is not None:
                fitted[name] = fit
    return fitted | _whole_blocks(kind, rows, fitted)


def _built_in_flops_s(device: GpuType, name: str) -> float:
    rates = built_in_rates(device)
    if name.startswith("attention"):
        return rates.flash[name.endswith("backward")] * device.peak_flops
    return matmul_flops_s(device, rates, "fp8" if name == "fp8" else "bf16")


def _whole_blocks(kind: str, rows: Sequence[Row], fitted: Mapping[str, Fit]) -> dict[str, Fit]:
    blocks = [(row, model) for row in rows if row["tp"] == 1 and (model := shape_of(row["model"]))]
    if len(blocks) < LEAST_ROWS:
        return {}
    site, free = _site(kind), replace(rates_from(gpu_models.preset(kind), fitted), host=Host(0.0, 0.0, 0.0))
    modelled = [layer_times(model, site, 1, row["micro_batch"], "none", free) for row, model in blocks]
    found = {}
    for way in ("forward", "backward"):
        times = np.array([getattr(one, f"{way}_s")[1] for one in modelled])
        found[f"host {way}"] = least_squares.floor(times, np.array([row[f"{way}_s"] for row, _ in blocks]))
    stored = [
        (row["micro_batch"] * block_activation_bytes(model, 1, "none", False), float(row["activation_bytes"]))
        for row, model in blocks if row["activation_bytes"]
    ]  # fmt: skip
    if len(stored) >= LEAST_ROWS:
        predicted, measured = (np.array(column) for column in zip(*stored, strict=True))
        factor = float(np.median(measured / predicted))
        found["stored activations"] = Fit(
            {"measured_over_modelled": factor}, len(stored), least_squares.mean_error(predicted, measured),
            least_squares.mean_error(factor * predicted, measured),
        )  # fmt: skip
    return found


def _blocks(rows: Sequence[Row]) -> dict[str, list[list[float]]]:
    """Measured blocks by label: [micro-batch, forward seconds, backward seconds], ascending."""
    found: dict[str, list[list[float]]] = {}
    for row in rows:
        if row["tp"] == 1 and row["layer"] == "block" and shape_of(row["model"]) and row["backward_s"]:
            found.setdefault(row["model"], []).append(
                [row["micro_batch"], row["forward_s"], row["backward_s"]]
            )
    return {label: sorted(times) for label, times in found.items()}


def collective_fits(kind: str, rows: Sequence[Row]) -> Iterator[tuple[str, Fit]]:
    """Fits of all-reduces inside a node, then of the remaining time between nodes by ranks a node."""
    usual = gpu_models.fabric(kind)
    intra = Link(usual.intra_node_bps, usual.intra_node_latency_s)
    inter = Link(usual.inter_node_bps, usual.inter_node_latency_s)
    for name, local, chosen in levels(kind, rows):
        far = local > 0
        if len(chosen) < LEAST_ROWS:
            continue
        fit = least_squares.all_reduce(_reductions(chosen, intra if far else None), inter if far else intra)
        if fit is None:
            continue
        if not far and fit.better:
            intra = Link(fit.values["bandwidth_bps"], fit.values["alpha_s"])
        yield name, fit


def levels(kind: str, rows: Sequence[Row]) -> Iterator[tuple[str, int, list[Row]]]:
    """All-reduces of a GPU model by where they run: name of the fit, ranks a node (0: all in one), rows.
    Inside a node comes first."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        local, rest = divmod(row["ranks"], row["nodes"] or 1)
        if model_of(row["gpu_model"]) == kind and rest == 0:
            groups.setdefault(local if (row["nodes"] or 1) > 1 else 0, []).append(row)
    for local, chosen in sorted(groups.items()):
        where = f"inter-node, {local} a node," if local else "intra-node"
        yield f"{where} all-reduce", local, chosen


def _reductions(rows: Sequence[Row], intra: Link | None) -> least_squares.Reductions:
    """Rows of one group; with `intra` those between nodes, after the part inside them."""
    ranks, nodes, size, seconds = (
        np.array([float(row[name] or 1) for row in rows]) for name in ("ranks", "nodes", "bytes", "time_s")
    )
    if intra is None:
        return least_squares.Reductions(ranks, size, seconds, np.zeros(len(rows)), tree=False)
    local = int(ranks[0] / nodes[0])
    inside = np.minimum(all_reduce_s(size, local, intra), seconds)
    return least_squares.Reductions(nodes, size / local, seconds, inside, tree=True)


def _power(kind: str, rows: Sequence[Row]) -> dict[str, Fit]:
    """Power against activity, SM activity where it is measured."""
    mine = [row for row in rows if model_of(row["gpu_model"]) == kind]
    activity, watts = (np.array([float(row[name]) for row in mine]) for name in ("activity", "power_w"))
    if len(mine) < LEAST_ROWS or np.ptp(activity) < 0.1:
        return {}
    return {"power": least_squares.power(activity, watts)}
