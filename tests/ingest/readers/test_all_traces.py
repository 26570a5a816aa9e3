"""Everything under ../shared/traces, links in one ingest and GPUs in another: nothing lost, nothing twice,
memory bounded.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.sets import data_lines

pytestmark = pytest.mark.shared

CHILD = """
import json, re, sys
from pathlib import Path
from ingest.pipeline.ingest import ingest
report = ingest([Path(sys.argv[1])], Path(sys.argv[2])).to_json()
# VmHWM, not ru_maxrss: the latter carries over what the parent held when it forked.
status = Path("/proc/self/status").read_text()
report["peak_mb"] = int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) / 1024
print(json.dumps(report))
"""


def ingested(traces: Path, store: Path, repository: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", CHILD, str(traces), str(store)]
    done = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True, timeout=600)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def counted_by_hand(traces: Path, part: str) -> dict[str, int]:
    """Rows of some files of a part, by their lines."""
    plain = [*(traces / "wan/ripe-atlas-rtt").glob("*.csv"), *(traces / "gpu/jobs-philly").glob("*.csv")]
    plain += (traces / "gpu/telemetry-h100-dcgm-10hz").glob("*.csv")
    plain += [traces / "wan/intercloud-throughput/results.csv"]
    plain += (traces / "gpu/telemetry-nanogpt-nvidia-smi").glob("*.csv")
    found = {str(path): data_lines(path) for path in plain}
    nodes = (traces / "gpu/telemetry-mlperf-smc-h100").rglob("node_*.txt")
    found |= {str(path): path.read_text().count('"key": "power_reading"') for path in nodes}
    return {path: rows for path, rows in found.items() if path.startswith(f"{traces / part}/")}


@pytest.mark.parametrize(("part", "rows", "files"), [("wan", 7_300_000, 25), ("gpu", 1_400_000, 80)])
def test_everything_is_stored_or_rejected_once(
    shared: Path, tmp_path: Path, repository: Path, part: str, rows: int, files: int
) -> None:
    assert {folder.name for folder in (shared / "traces").iterdir() if folder.is_dir()} == {"wan", "gpu"}
    traces = shared / "traces" / part
    first = ingested(traces, tmp_path / "store", repository)
    for file in first["files"]:
        assert file["rows_in"] == sum(file["stored"].values()) + file["rejected"], file["path"]
    assert first["rows_in"] == sum(first["rows"].values()) + first["rejected"] > rows
    unread = [f["path"] for f in first["files"] if "no reader knows" in str(f["skipped"])]
    assert [path for path in unread if "/profiles-aiconfigurator/" not in path] == []  # it has no reader yet
    rows_in = {file["path"]: file["rows_in"] for file in first["files"]}
    expected = counted_by_hand(traces.parent, part)
    assert len(expected) >= files
    assert {path: rows_in[path] for path in expected} == expected
    assert first["peak_mb"] < 500
    second = ingested(traces, tmp_path / "store", repository)
    assert (second["rows"], second["rejected"], second["rows_in"]) == ({}, 0, 0)
    assert len(second["files"]) == len(first["files"])
