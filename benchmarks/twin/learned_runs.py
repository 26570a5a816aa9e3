"""`twin calibrate --runs` on the logs of MLPerf's GPT-3: what people would type, and what it prints. Used by
fidelity.py.
"""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner

import cli
from benchmarks.twin.measured_runs import mlperf
from ingest.core.durable import replace

LOGS = ("profiles-mlperf-gpt3-scaling", "telemetry-mlperf-smc-h100")
JOBS = {
    "NVIDIA 512 H100": "profiles-mlperf-gpt3-scaling/eos_n64_result_0",
    "NVIDIA 10,752 H100": "profiles-mlperf-gpt3-scaling/eos-dfw_n1344_result_0",
    "SMC 512 H100": "telemetry-mlperf-smc-h100/result_5848-240517221859825376616_2",
}
"""DATASET/JOB of each run of `measured_runs.mlperf` in the lake."""
TEXT = """The logs of three runs on H100 are ingested, and a table names their plans (the cells of `MLPerf \
GPT-3 175B` above) and in `run` the job in the lake:
"""
AFTER = """So it says where the time goes, and that these runs tell two of three factors apart: 512 GPUs \
send little between nodes, 10,752 much. Nothing of it enters the defaults; a store that keeps it predicts \
runs on H100 with it.
"""


def cases(shared: Path) -> str:
    """The table of cases as CSV."""
    rows = [{"case": run.name.replace(",", ""), **run.cells, "run": JOBS[run.name]} for run in mlperf(shared)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def section(shared: Path) -> list[str]:
    """Commands and what they print, without the digest of the store."""
    table = cases(shared)
    with TemporaryDirectory() as folder:
        path, store = Path(folder) / "mlperf.csv", ["--store", str(Path(folder) / "store")]
        replace(path, table.encode())
        _typed([*store, "ingest", *(str(shared / "traces/gpu" / name) for name in LOGS)])
        shown = _typed([*store, "calibrate", "--runs", str(path)])
    said = [line.rstrip() for line in shown.splitlines() if not line.startswith("calibration ")]
    ingested = " ".join(f"../shared/traces/gpu/{name}" for name in LOGS)
    return [
        "## What runs teach", "", TEXT, "```", table.rstrip(), "```", "", "```",
        f"$ twin ingest {ingested}", "$ twin calibrate --runs mlperf.csv", *said, "```", "", AFTER,
    ]  # fmt: skip


def _typed(words: list[str]) -> str:
    result = CliRunner().invoke(cli.twin, words)
    if result.exit_code:
        raise SystemExit(f"twin {' '.join(words)}: {result.output or result.exception}")
    return result.output
