"""Do two versions of the code compute the same runs? Digests of every shipped scenario and of a retraining.

Each scenario runs under `static`, `mpc` and `hippo` with seed 0, then `twin retrain --once` trains a
challenger and decides about it. A digest is SHA-256 over the events of a log as stored, without what names
the code itself: the digest of the sources in `run_started`, of the checkpoint that was trained and of the
logs that name one.

    python -m benchmarks.replay.run_digests record BEFORE.json --tree OTHER_CHECKOUT
    python -m benchmarks.replay.run_digests record AFTER.json
    python -m benchmarks.replay.run_digests compare BEFORE.json AFTER.json
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "traces"
SETS = (
    "wan/cloudpilot-iperf3",
    "wan/wanify-aws8",
    "wan/skyplane-grids",
    "wan/geant-traffic-matrices",
    "gpu/jobs-philly",
)
POLICIES = ("static", "mpc", "hippo")
NAMES_CODE = {
    "code",
    "config_digest",
    "parent",
    "part_of",
    "sources",
    "checkpoint",
    "challenger",
    "champion",
    "run",
    "runs",
    "digest",
    "chain_head",
}
"""Keys of payloads whose values follow from the digest of the sources, directly or through another log."""


def twin(tree: Path, store: Path, *words: str) -> None:
    """One command of the `twin` of `tree`."""
    command = [sys.executable, "-c", "import cli; cli.process()", *words, "--store", str(store)]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    subprocess.run(command, cwd=tree, env=env, check=True, stdout=subprocess.DEVNULL)


def comparable(value: Any) -> Any:
    """A payload without what names the code."""
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items() if key not in NAMES_CODE}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def log_digest(run: Path) -> str:
    """The first 16 hex digits of SHA-256 over the events of one log, in order."""
    total = hashlib.sha256()
    for part in sorted(run.glob("*.parquet")):
        for event in pq.read_table(part).to_pylist():
            payload = comparable(json.loads(event["payload"]))
            row = [event["seq"], event["sim_ns"], event["type"], event["version"], event["job"], payload]
            total.update(json.dumps(row, sort_keys=True).encode() + b"\n")
    return total.hexdigest()[:16]


def record(tree: Path, scenarios: list[str], retraining: bool = True) -> dict[str, str]:
    """Digest of each run by "scenario policy", and of each log of the retraining by its order."""
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        runs = store / "runs"
        measured = [str(SHARED / name) for name in SETS if (SHARED / name).exists()]
        twin(tree, store, "ingest", str(tree / "traces"), *measured)

        def take(name: str, *words: str) -> None:
            known = set(runs.iterdir()) if runs.exists() else set()
            twin(tree, store, *words)
            new = sorted(set(runs.iterdir()) - known, key=lambda path: path.stat().st_mtime_ns)
            for number, run in enumerate(new):
                key = name if len(new) == 1 else f"{name} {number}"
                digests[key] = log_digest(run)
                print(f"{key:32} {digests[key]}", file=sys.stderr)

        for scenario in scenarios:
            for policy in POLICIES:
                take(f"{scenario} {policy}", "replay", "-s", scenario, "-p", policy, "--seed", "0")
        if retraining:
            short = store / "short.yaml"
            short.write_text("iterations: 1\nimitation: {lessons: 2, searched: 4, steps: 10}\n")
            take("training", "train", "-s", "tri-7b", "--settings", str(short), "--activate")
            take("retraining", "retrain", "--once", "-s", "tri-7b")
    return digests


def compare(before: dict[str, str], after: dict[str, str]) -> int:
    """Print one line a run; the exit code says whether all are equal."""
    differing = [key for key in sorted(before | after) if before.get(key) != after.get(key)]
    for key in sorted(before | after):
        said = "DIFFERS" if key in differing else "equal"
        print(f"{key:32} {before.get(key, 'missing'):16} {after.get(key, 'missing'):16} {said}")
    print(f"{len(before | after) - len(differing)} of {len(before | after)} equal")
    return 1 if differing else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout whose code runs")
    parser.add_argument("--scenario", action="append", help="only these")
    parser.add_argument("--no-retraining", action="store_true")
    parser.add_argument("--only-retraining", action="store_true")
    given = parser.parse_args()
    if given.verb == "compare":
        return compare(*(json.loads(path.read_text()) for path in given.files))
    shipped = sorted(path.stem for path in (given.tree / "configs" / "scenarios").glob("*.yaml"))
    chosen = [] if given.only_retraining else given.scenario or shipped
    digests = record(given.tree.resolve(), chosen, not given.no_retraining)
    given.files[0].write_text(json.dumps(digests, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
