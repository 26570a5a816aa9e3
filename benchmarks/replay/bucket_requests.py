"""Requests that commands on a store in a bucket make: python -m benchmarks.replay.bucket_requests

A SeaweedFS on this machine is the server. Each row is one step in a fresh state of the client, as a command
begins; `another machine` has an empty working copy. Pages of the scrape are made up.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import policy.hippo
from ingest.core import resources
from ingest.lake import lake, merging
from ingest.objects.bucket_prefix import connected
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import from_bytes
from ingest.pipeline.ingest import ingest, ingest_sources
from replay.log.bucket_log import store_at
from replay.run import runner
from replay.sql.query import query
from replay.store import checkpoint_registry
from tests.support.buckets import Server, environment
from twin.scenario import prepare

URL, COMMITS = "s3://backups/requests", 256
SELECT = "SELECT src, count(*) FROM link_samples GROUP BY ALL"


def step(name: str, act: Callable[[Path], object]) -> None:
    """Prints the requests of one step, and its wall time."""
    objects = connected(URL)
    before, began_s = objects.requests.to_json(), time.perf_counter()
    act(store_at(URL))
    made = {kind: count - before[kind] for kind, count in objects.requests.to_json().items()}
    counts = " | ".join(f"{count:,}" for count in made.values())
    print(f"| {name} | {counts} | {time.perf_counter() - began_s:.2f} |", flush=True)


def replayed(store: Path) -> None:
    """One run on the lake of the bucket."""
    runner.run(store, policy="static", scenario=prepare.load("tri-7b"))


def promoted(store: Path) -> None:
    """A checkpoint comes into the store and is promoted."""
    (shipped,) = Path(policy.hippo.__file__).with_name("shipped").glob("hippo-*.pt")
    checkpoint_registry.promote(store, str(checkpoint_registry.resolve(store, "hippo", str(shipped))))


def scraped(store: Path) -> None:
    """As many commits as a scrape makes in a good four hours, of ten hosts each."""
    options = DatasetOptions(name="scraped", reader="prometheus-text")
    for number in range(COMMITS):
        at_ms = 1_795_687_200_000 + 60_000 * number
        line = f'ipmi_dcmi_power_consumption_watts{{instance="n{{host}}"}} {number} {at_ms}\n'
        page = "".join(line.replace("{host}", str(host)) for host in range(10)).encode()
        ingest_sources(options, [from_bytes(f"page@{number}-{number + 1}", "page", page)], store)
        merging.merge_small(store, "scraped")
    held = [one for one in lake.live(store) if one.dataset == "scraped"]
    print(f"| ({len(held)} commits are left of {COMMITS}) | | | | | |")


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as name, Server(Path(name) / "weed") as server:
        os.environ.update(environment(server.address), XDG_CACHE_HOME=f"{name}/here")
        print("| step | PUT | GET | LIST | DELETE | s |\n|---|---:|---:|---:|---:|---:|")
        step("ingest of the shipped traces", lambda store: ingest([resources.traces()], store))
        step("the same again", lambda store: ingest([resources.traces()], store))
        step("replay, static", replayed)
        step("sql over the lake", lambda store: query(store, SELECT))
        step("a checkpoint is stored and promoted", promoted)
        os.environ["XDG_CACHE_HOME"] = f"{name}/there"
        step("sql over the lake, another machine", lambda store: query(store, SELECT))
        step("the same again", lambda store: query(store, SELECT))
        step("the promoted checkpoint, another machine", checkpoint_registry.in_use)
        step(f"scrape of {COMMITS} commits, another machine", scraped)


if __name__ == "__main__":
    main()
