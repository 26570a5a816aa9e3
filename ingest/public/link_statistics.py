"""Figures measured on public data sets: what the synthetic traces are made from.

They are kept in `traces/README.statistics.json`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import InputError, NotFoundError
from ingest.lake.series_statistics import LEVELS, Array, dynamics, marginal

SCHEMA = "twin.statistics/1"
FILE_NAME = "README.statistics.json"
"""Begins like documentation, so that `twin ingest traces/` does not take it for data."""
QUAD_SITES = ("europe-west2-a_gcp", "lon02_ibm", "australia-southeast1-a_gcp", "syd01_ibm")
OCTO_SITES = (
    "us-east-1",
    "us-west-1",
    "eu-west-1",
    "ap-south-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-northeast-1",
    "sa-east-1",
)
GPU_METRICS = (
    "util",
    "sm_active",
    "tensor_active",
    "dram_active",
    "mem_used_bytes",
    "power_w",
    "temp_c",
    "nvlink_tx_bytes_s",
    "nvlink_rx_bytes_s",
)


def measure(store: Path) -> dict[str, Any]:
    """The figures behind the synthetic traces, from the lake in `store`.

    Raises:
        NotFoundError: the lake lacks one of the public sets; the message names it.
    """
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(store) as connection:
        links = {
            "cloudpilot-iperf3": _measure_links(
                connection, "cloudpilot-iperf3", QUAD_SITES, "duration_s >= 5"
            ),
            "wanify-aws8": _measure_links(connection, "wanify-aws8", OCTO_SITES, "duration_s >= 5"),
        }
        _add_rtt(connection, links["wanify-aws8"])
        gpu = _measure_gpu(connection)
    return {"schema": SCHEMA, "levels": list(LEVELS), "links": links, "gpu": gpu}


def read(path: Path) -> dict[str, Any]:
    """The figures in `path`.

    Raises:
        InputError: not a statistics file of this version.
    """
    try:
        figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as statistics: {error}") from error
    if figures.get("schema") != SCHEMA:
        raise InputError(f"{path}: its schema is {figures.get('schema')!r}, expected {SCHEMA!r}")
    return figures


def dumps(figures: Mapping[str, Any]) -> str:
    """The text of a statistics file: one link or metric a line, numbers to six digits."""
    lines = [
        "{",
        f'  "schema": {json.dumps(figures["schema"])},',
        f'  "levels": {json.dumps(figures["levels"])},',
    ]
    for n, (section, entries) in enumerate((("links", figures["links"]), ("gpu", figures["gpu"]))):
        lines.append(f'  "{section}": {{')
        for k, (name, rows) in enumerate(entries.items()):
            body = ",\n".join("      " + json.dumps(_rounded(row)) for row in rows)
            lines.append(f"    {json.dumps(name)}: [\n{body}\n    ]{',' if k + 1 < len(entries) else ''}")
        lines.append("  }" + ("," if n == 0 else ""))
    return "\n".join([*lines, "}", ""])


def _measure_links(connection: Any, dataset: str, sites: tuple[str, ...], where: str) -> list[dict[str, Any]]:
    sql = f"""
        SELECT epoch_ns(ts) / 1e9 AS t, bandwidth_bps AS bandwidth, rtt_s AS rtt FROM link_samples
        WHERE dataset = ? AND src = ? AND dst = ? AND bandwidth_bps IS NOT NULL AND {where} ORDER BY ts
    """
    rows = []
    for src in sites:
        for dst in sites:
            if src == dst:
                continue
            got = connection.execute(sql, [dataset, src, dst]).fetchnumpy()
            if len(got["t"]) < 2:
                raise NotFoundError(
                    f"the lake has no series of {dataset!r} from {src!r} to {dst!r}; ingest that set"
                )
            row: dict[str, Any] = {
                "src": src,
                "dst": dst,
                "bandwidth": series_figures(got["t"], got["bandwidth"]),
            }
            rtt = np.ma.compressed(np.ma.masked_invalid(got["rtt"]))
            if len(rtt):
                row["rtt"] = asdict(marginal(rtt))
            rows.append(row)
    return rows


def series_figures(times_s: Array, values: Array) -> dict[str, Any]:
    """Marginal and dynamics of one series as JSON values."""
    values = np.asarray(values, np.float64)
    return asdict(marginal(values)) | asdict(dynamics(np.asarray(times_s, np.float64), values))


def _add_rtt(connection: Any, rows: list[dict[str, Any]]) -> None:
    """Round trips of AWS region pairs from Skyplane's ping grid, for a set that has none."""
    sql = """
        SELECT avg(rtt_s) FROM link_samples WHERE dataset = 'skyplane-grids' AND rtt_s IS NOT NULL
        AND src = 'aws:' || ? AND dst = 'aws:' || ?
    """
    for row in rows:
        (mean,) = connection.execute(sql, [row["src"], row["dst"]]).fetchone()
        if mean is None:
            raise NotFoundError("the lake has no round-trip times of 'skyplane-grids'; ingest that set")
        # One ping series a pair: its spread over minutes is about 1 %, as on cloudpilot's long links.
        row["rtt"] = {"samples": 1, "mean": mean, "sd": 0.01 * mean, "quantiles": []}


def _measure_gpu(connection: Any) -> dict[str, list[dict[str, Any]]]:
    """Metrics of 8 GPUs that train (file t3, data parallel on one node), the pauses left out."""
    source = "telemetry-h100-dcgm-10hz"
    names = ", ".join(GPU_METRICS)
    got = connection.execute(
        f"""SELECT gpu, epoch_ns(ts) / 1e9 AS t, {names} FROM gpu_samples
            WHERE dataset = ? AND source_file LIKE '%t3_telemetry%' AND util >= 0.5 ORDER BY gpu, ts""",
        [source],
    ).fetchnumpy()
    if len(got["t"]) == 0:
        raise NotFoundError(f"the lake has no GPU samples of {source!r}; ingest that set")
    first = got["gpu"] == got["gpu"][0]
    power = np.asarray(got["power_w"], np.float64)
    rows = []
    for metric in GPU_METRICS:
        values = np.ma.filled(np.ma.asarray(got[metric], dtype=np.float64), 0.0)
        spread = values.std() > 0
        rows.append(
            {"metric": metric}
            | asdict(marginal(values))
            | {
                "fast_tau_s": dynamics(got["t"][first], values[first]).fast_tau_s,
                "correlation_with_power": float(np.corrcoef(values, power)[0, 1]) if spread else 0.0,
            }
        )
    return {source: rows}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return value
