"""The log in a bucket beside the log on a disk, and the page of it: python -m benchmarks.replay.object_store

A SeaweedFS on this machine is the server: what a network adds is not in the figures. Appends take turns
between disk and bucket, the same events in both; medians are shown. Queries read the same runs on the
disk, from a working copy that is made for the first query, and from it again. `--trials` is the file that
`benchmarks.replay.object_store_trials` wrote.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay.log import ours
from ingest.core import resources
from ingest.core.durable import replace
from ingest.objects.bucket_prefix import connected
from ingest.pipeline.ingest import ingest
from replay.inventory.synchronization import synchronize
from replay.log.bucket_log import store_at
from replay.log.run_log import RunReader
from replay.run import runner
from replay.sql.query import query
from replay.store.run_header import code_version
from tests.support.buckets import Server, environment
from tests.support.histories import write
from twin.scenario import prepare

TURNS, PER_COMMIT, MOST_COMMITS, RUNS, DECISIONS = 3, (1, 100, 5000), 60, 4, 200
SELECT = "SELECT run, type, count(*) AS n, max(sim_ns) AS last FROM events GROUP BY ALL ORDER BY ALL"


def seconds(act: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def appends(disk: Path, bucket: Path) -> list[tuple[int, str, float, float, float]]:
    """(events a commit, place, events a second, p50 and p99 of a commit in ms)."""
    rows = []
    for per_commit in PER_COMMIT:
        events = per_commit * min(MOST_COMMITS, max(4, 30_000 // per_commit))
        turns: dict[str, list[tuple[float, float, float]]] = {"disk": [], "bucket": []}
        for turn in range(TURNS):
            for place, store in (("disk", disk), ("bucket", bucket)):
                took_s, each = ours(store / "runs" / f"append-{per_commit}-{turn}", events, per_commit)
                turns[place].append((events / took_s, *(1e3 * np.quantile(each, (0.5, 0.99)))))
        for place, found in turns.items():
            rate, p50, p99 = np.median(found, axis=0)
            rows.append((per_commit, place, float(rate), float(p50), float(p99)))
    return rows


def reads(disk: Path, url: str, cache: Path) -> dict[str, Any]:
    """Seconds of a query and of a verification at each place, and requests of the first query."""
    events = sum(1 for run in range(RUNS) for _ in _written(disk, run))
    target = store_at(url)
    objects = connected(url)
    before = objects.requests.total
    copied_s = seconds(lambda: synchronize(disk, target))
    sync_requests = objects.requests.total - before
    query(disk, SELECT)  # imports and compiles
    expected = query(disk, SELECT).to_pylist()
    on_disk = [seconds(lambda: query(disk, SELECT)) for _ in range(TURNS)]
    first, again, requests = [], [], 0
    for _ in range(TURNS):
        shutil.rmtree(cache)
        before = objects.requests.total
        first.append(seconds(lambda: query(store_at(url), SELECT)))
        requests = objects.requests.total - before
        again.append(seconds(lambda: query(store_at(url), SELECT)))
        assert query(store_at(url), SELECT).to_pylist() == expected
    RunReader(disk / "runs" / "q0").verify()  # compiles
    verified = {
        "disk": seconds(lambda: [RunReader(disk / "runs" / f"q{run}").verify() for run in range(RUNS)]),
        "bucket": seconds(lambda: [RunReader(target / "runs" / f"q{run}").verify() for run in range(RUNS)]),
    }
    batches = sum(len(RunReader(disk / "runs" / f"q{run}").manifests()) for run in range(RUNS))
    medians = {name: float(np.median(row)) for name, row in
               (("on_disk", on_disk), ("first", first), ("again", again))}  # fmt: skip
    return {
        **medians, "verified": verified, "requests": requests, "events": events, "batches": batches,
        "copied_s": copied_s, "sync_requests": sync_requests,
    }  # fmt: skip


def _written(store: Path, run: int) -> range:
    run_dir = store / "runs" / f"q{run}"
    write(run_dir, DECISIONS, policy=("mpc", "static")[run % 2])
    return range(RunReader(run_dir).contents().end)


def replayed(url: str) -> dict[str, Any]:
    """Requests of one replay of the shipped data by the static policy."""
    store, objects = store_at(url), connected(url)
    ingest([resources.traces()], store)
    before = objects.requests.to_json()
    result = runner.run(store, policy="static", scenario=prepare.load("tri-7b"))
    made = {kind: count - before[kind] for kind, count in objects.requests.to_json().items()}
    reader = RunReader(store / "runs" / result.run_id)
    return {"made": made, "events": reader.contents().end, "batches": len(reader.manifests())}


def page(trials: dict[str, Any], rows: list[tuple[int, str, float, float, float]], read: dict[str, Any],
         run: dict[str, Any]) -> str:  # fmt: skip
    """The page, in Markdown."""
    kill, same = trials["kill"], trials["code"] == code_version()["sources"]
    lines = [
        f"| {per:,} | {place} | {rate:,.0f} | {p50:.2f} | {p99:.2f} |" for per, place, rate, p50, p99 in rows
    ]
    made = run["made"]
    return f"""# The log in a bucket

Generated by `benchmarks/replay/object_store.py` on {os.cpu_count()} cores, {platform.machine()}, Python
{platform.python_version()}, of code {code_version()["sources"][:12]}{"" if same else f"; kills and races of code {trials['code'][:12]}"}. The server is SeaweedFS 4.48 on the same machine, with its data on the
same disk; a network and a provider's server add their own time. The events are made up.

## Kills and races
`python -m benchmarks.replay.object_store_trials --out FILE`

| tried | aim | count | result |
|---|---:|---:|---|
| kill -9: {kill["kills"] - kill["of_server"]} of the writer, {kill["of_server"]} of the server, which is started again; {kill["in_the_middle"]} in the middle of a run | 200 | {kill["kills"]} | {kill["lost"]} lost an acknowledged event, {kill["not_whole"]} left damage or another digest after resuming elsewhere |
| two writers of one run at once | 50 | {trials["races"]} | {trials["one_winner"]} with one winner and one told, {trials["whole"]} logs whole and the winner's alone |

After each trial a new working copy, as another machine has it, reads and verifies the log; after a kill it resumes the run to
its end, and its digest is that of a run nobody stopped. {kill["seconds"]:.0f} s for the kills, {trials["seconds"]:.0f} s for the races. Requests that are lost, carried out without an
answer, or late are tried one by one at every point of a run in `tests/replay/log/test_bucket_log.py`.

## Appends
The same events, in turns of disk and bucket, medians of {TURNS} turns. A commit returns when its events are durable: after one fsync
on the disk, after one answered PUT in the bucket.

| events a commit | log on | events/s | commit p50 ms | commit p99 ms |
|---:|---|---:|---:|---:|
{chr(10).join(lines)}

The disk waits for fsync. SeaweedFS ran with its defaults, in which an answered PUT is not known to be on the disk: kills of the server
were tried, power cuts of its machine were not. A server that waits for its disk takes longer.

At 5,000 events the log seals by itself before it is told to: those commits are in the rate, not in the columns of a commit.

## Reading
{RUNS} runs with {read["events"]:,} events in {read["batches"]} segments, medians of {TURNS} turns.

| what | s |
|---|---:|
| `twin sql` (events by run and type), disk | {read["on_disk"]:.3f} |
| the same, bucket, new working copy ({read["requests"]} requests) | {read["first"]:.3f} |
| the same, bucket, working copy there | {read["again"]:.3f} |
| verification of all runs, disk | {read["verified"]["disk"]:.3f} |
| verification of all runs, bucket: every object is read again | {read["verified"]["bucket"]:.3f} |
| `twin sync` disk to bucket ({read["sync_requests"]} requests) | {read["copied_s"]:.3f} |

## Requests
* Writing a run: one PUT for each batch, one for the check of conditional writes (two in a new store), one for the record of the
  head; two LIST when it is opened. A batch is what a flush makes durable: the first event, then one a second or 5,000 events,
  whichever comes first, and the end. `twin serve` flushes before each answer: one PUT for each.
* A replay of the shipped traces (`tri-7b`, static, {run["events"]} events): {made["put"]} PUT, {made["list"]} LIST, {made["get"]} GET for {run["batches"]} batches.
* Reading: one LIST for the store (one more for each 1,000 objects), then for each run that is read one LIST, and one GET for each
  batch the working copy lacks. A record of a head that is new costs one GET and one LIST.
* `twin audit` reads every batch of the run again: one GET each.
"""  # noqa: E501 - lines of a page


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/measured/object-store.md"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Server(Path(name) / "weed") as server:
        root = Path(name)
        os.environ.update(environment(server.address), XDG_CACHE_HOME=str(root / "cache"))
        rows = appends(root / "disk", store_at("s3://backups/appends"))
        for row in rows:
            print(row, flush=True)
        read = reads(root / "read", "s3://backups/reads", root / "cache")
        print(read, flush=True)
        run = replayed("s3://backups/replayed")
        print(run, flush=True)
    replace(given.out, page(json.loads(given.trials.read_text()), rows, read, run).encode())


if __name__ == "__main__":
    main()
