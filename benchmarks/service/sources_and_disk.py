"""Trials of `twin serve` with a followed file and kill -9, and with a disk that is full.

python -m benchmarks.service.endurance --only following disk --write
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.service.endurance import BATCH, ROOT, Seen, batch, served, store_at
from ingest.core.durable import replace
from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import run_index
from tests.support.serving import http_of_twin_serve

PAGE = ROOT / "docs" / "measured" / "service-sources.md"
EVERY_S = 0.02
"""Seconds between two batches that are written."""
ROTATE = 150
"""Batches after which the file is rotated."""
DISK_MB = 24


class Writer(threading.Thread):
    """Appends lines to a file, which it rotates by renaming, and remembers each."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path, self.written, self.rotations = path, list[tuple[str, str, int]](), 0
        self.stop = threading.Event()

    def run(self) -> None:
        chance, number = random.Random(2), 0
        while not self.stop.wait(EVERY_S):
            number += 1
            if number % ROTATE == 0:
                self.rotations += 1
                self.path.rename(f"{self.path}.{self.rotations}")
            items = batch(chance)
            with self.path.open("a") as file:
                file.writelines(json.dumps(item) + "\n" for item in items)
            self.written += [(item["src"], item["dst"], item["epoch_ns"]) for item in items]


def following(kills: int) -> Seen:
    """kill -9 of a service that follows a file which is written and rotated all the time."""
    chance = random.Random(9)
    with tempfile.TemporaryDirectory() as folder:
        store, path = store_at(f"{folder}/store"), Path(folder, "links.jsonl")
        path.touch()
        words = "--follow", str(path)
        with served(store, *words):  # the run begins before the first line
            pass
        writer = Writer(path)
        writer.start()
        for _ in range(kills):
            with served(store, *words) as (process, _):
                time.sleep(chance.uniform(0.2, 2.0))
                process.kill()
                process.wait()
        writer.stop.set()
        writer.join()
        with served(store, *words) as (_, url), http_of_twin_serve(url) as http:
            names = [domain["name"] for domain in http.get("/v1/state").raise_for_status().json()["domains"]]
            end, before = time.monotonic() + 120, -1.0
            while time.monotonic() < end and (now := _taken(http)) != before:
                before = now
                time.sleep(4)
        (run,) = run_index.all_ids(store)
        events = list(RunReader(run_index.folder(store, run)).events())
        report = audit(store, run)
    origin = next(e for e in events if e.type == "run_started").payload["live"]["origin_epoch_ns"]
    seen = Counter(
        (names[i], names[j], origin + ns)
        for e in events if e.type == "telemetry_received" for i, j, ns, *_ in e.payload["links"]
    )  # fmt: skip
    missing, twice = set(writer.written) - set(seen), sum(count > 1 for count in seen.values())
    return Seen(
        "a followed file and kill -9",
        f"{len(writer.written):,} samples of {len(names)} sites appended, the file rotated "
        f"{writer.rotations} times; {kills} kills",
        f"{len(missing)} missing, {twice} twice; audit {'sound' if report.ok else report.findings}",
        not missing and not twice and report.ok,
    )


def _taken(http: httpx.Client) -> float:
    lines = http.get("/metrics").raise_for_status().text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("twin_source_items_total"))


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system in memory of so many MB; needs the right to mount."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder],
            check=True,
            capture_output=True,
        )
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def full_disk() -> Seen:
    """The disk of the store fills, stays full, and has room again; twice."""
    chance, codes, taken = random.Random(4), Counter[int](), dict[str, int]()
    with small_disk(DISK_MB) as disk:
        store = store_at(str(disk / "store"))
        with served(store) as (_, url), http_of_twin_serve(url) as http:
            for time_ in range(2):
                ballast = disk / "ballast"
                _fill(ballast)
                end, refused = time.monotonic() + 60, 0
                while refused < 10 and time.monotonic() < end:
                    refused += not _push(http, chance, codes, taken)
                ready = http.get("/ready").status_code
                codes[ready] += 1
                ballast.unlink()
                end = time.monotonic() + 60
                while not _push(http, chance, codes, taken) and time.monotonic() < end:
                    time.sleep(0.2)
                for _ in range(20):
                    _push(http, chance, codes, taken)
                print(f"disk full, time {time_ + 1}", file=sys.stderr)
        (run,) = run_index.all_ids(store)
        keys = [e.payload["key"] for e in RunReader(run_index.folder(store, run)).events()
                if e.type == "telemetry_received"]  # fmt: skip
        report = audit(store, run)
    lost = taken.keys() - set(keys)
    said = ", ".join(f"{number} x {code}" for code, number in sorted(codes.items()))
    return Seen(
        "disk full",
        f"a store on a file system of {DISK_MB} MB, filled twice until nothing can be "
        "written, then freed; no restart",
        f"{said}; of {len(taken)} acknowledged batches {len(lost)} are missing, {len(keys) - len(set(keys))} "
        f"are twice; audit {'sound' if report.ok else report.findings}",
        not lost
        and len(keys) == len(set(keys))
        and report.ok
        and codes[503] >= 20
        and set(codes) <= {200, 503},
    )


def _fill(path: Path) -> None:
    """Writes a file until the disk is full."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while os.write(fd, bytes(size)) == size:
                    pass
            except OSError:
                continue
    finally:
        os.close(fd)


def _push(http: httpx.Client, chance: random.Random, codes: Counter[int], taken: dict[str, int]) -> bool:
    key = f"b-{codes.total()}-{time.time_ns()}"
    answer = http.post(BATCH, json=batch(chance), headers={"Idempotency-Key": key})
    codes[answer.status_code] += 1
    if answer.status_code == 200:
        taken[key] = answer.json()["accepted"]
    return answer.status_code == 200


PAGE_TEXT = """# A followed file, and a disk that is full

`python -m benchmarks.service.sources_and_disk {words}` wrote this page. Each trial starts `twin serve` as a
process of its own on SYNTHETIC links of tri-7b with the policy `greedy` and looks at it from outside. Writer,
clients and service share the machine of {cores} cores, whose load average at the end was {load:.0f}.

| trial | what was done | what was seen | sound |
|---|---|---|---|
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="write the page")
    asked = parser.parse_args()
    rows = []
    for trial in (full_disk, lambda: following(asked.kills)):
        seen = trial()
        rows.append(f"| {seen.name} | {seen.done} | {seen.seen} | {'yes' if seen.sound else '**no**'} |")
        print(rows[-1], flush=True)
    if asked.write:
        words, load, cores = " ".join(sys.argv[1:]), os.getloadavg()[1], os.cpu_count()
        replace(PAGE, PAGE_TEXT.format(words=words, load=load, cores=cores, rows="\n".join(rows)).encode())


if __name__ == "__main__":
    main()
