"""Which run is the newest: the one that was first started last, whatever happens to the files of others."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.core.errors import NotFoundError
from replay.bench import bench, comparison, result_events
from replay.bench.world import BenchWorld
from replay.log.compaction import compact
from replay.log.run_log import RunReader
from replay.logqueue import comparison as queue_comparison
from replay.metrics import cost_time_points, store_status
from replay.run import runner, whatif
from replay.store import run_index
from replay.store.run_header import STARTED, from_payload
from replay.training import drift
from replay.training import train as training_run
from tests.support import queue_log
from tests.support.histories import lose_end, write
from tests.support.toys import toy_run, without_lake
from tests.support.worlds import toy_scenario

Pair = tuple[Path, str, str]


def touch(run_dir: Path, ahead_s: float) -> None:
    """Give the directory and everything in it another time of modification."""
    at_s = time.time() + ahead_s
    for path in (*run_dir.iterdir(), run_dir):
        os.utime(path, (at_s, at_s))


def resumed(store: Path, run_id: str) -> None:
    """Cut the end of the log off and compute it again."""
    lose_end(run_index.folder(store, run_id))
    runner.resume(store, run_id)


def compacted(store: Path, run_id: str) -> None:
    compact(run_index.folder(store, run_id))


def copied(store: Path, run_id: str) -> None:
    folder = run_index.folder(store, run_id)
    shutil.copytree(folder, store / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(folder)
    (store / "copy").rename(folder)
    os.utime(folder)


def touched(store: Path, run_id: str) -> None:
    touch(run_index.folder(store, run_id), 3600.0)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A store with an earlier and a later run of one policy."""
    without_lake(monkeypatch)
    return tmp_path, *(toy_run(tmp_path, "static").run_id for _ in range(2))


@pytest.mark.parametrize("change", [resumed, compacted, copied, touched])
def test_the_newest_run_is_the_one_that_was_started_last(
    pair: Pair, change: Callable[[Path, str], None]
) -> None:
    store, earlier, later = pair
    change(store, earlier)
    assert run_index.by_start(store, [later, earlier]) == (earlier, later)
    assert run_index.find(store, "latest") == later
    assert drift.newest(store, "toy-3") == later
    found = store_status.status(store).health
    assert found is not None and found.run_id == later


@pytest.mark.parametrize("change", [compacted, touched])
def test_the_newest_run_of_a_policy_stands_for_it(pair: Pair, change: Callable[[Path, str], None]) -> None:
    store, earlier, later = pair
    asked = toy_run(store, "single").run_id
    change(store, earlier)
    rows = comparison.stored_runs_of_world(store, asked).rows
    assert [row.run_id for row in rows if row.policy == "static"] == [later]
    points = cost_time_points.points(store, asked)
    assert [point.run_id for point in points if point.policy == "static"] == [later]


def test_the_latest_run_may_be_of_any_kind(pair: Pair) -> None:
    store, earlier, later = pair
    assert run_index.find(store, "latest") == later
    what_if = whatif.what_if(store, earlier, "single").run_id
    assert run_index.find(store, "latest") == what_if
    queue = queue_log_run(store)
    assert run_index.find(store, "latest") == queue
    header = from_payload(RunReader(run_index.folder(store, later)).header())
    curve = training_run.log_curve(store, replace(header, policy="train"), [])
    assert run_index.find(store, "latest") == curve
    world = BenchWorld.of(toy_scenario())
    compared = comparison.compare(store, ("single", "greedy"), world, with_bound=False)
    assert run_index.find(store, "latest") == compared.rows[-1].run_id
    (record,) = result_events.log(store, bench.single(store, world, compared))
    assert run_index.find(store, "latest") == record


def queue_log_run(store: Path) -> str:
    return queue_comparison.compare(queue_log.TARGET, ("easy",), keep=store).runs["easy"]


def test_a_bench_that_is_repeated_is_the_latest_again(pair: Pair) -> None:
    store, *_ = pair
    world = BenchWorld.of(toy_scenario())
    compared = comparison.compare(store, ("static", "single"), world, with_bound=False)
    result = bench.single(store, world, compared)
    (record,) = result_events.log(store, result)
    assert result_events.log(store, result) == (record,), "the newest run is not written again"
    toy_run(store, "greedy")
    (again,) = result_events.log(store, result)
    assert again != record and run_index.find(store, "latest") == again


def test_a_run_that_is_not_finished_is_never_the_latest(pair: Pair) -> None:
    store, earlier, later = pair
    lose_end(run_index.folder(store, later))
    found = run_index.latest(store)
    assert (found.run_id, found.unfinished) == (earlier, (later,))
    lose_end(run_index.folder(store, earlier))
    with pytest.raises(NotFoundError, match=rf"latest: no run in .* is finished; the newest is {later}"):
        run_index.find(store, "latest")


def test_a_damaged_run_may_be_the_latest_so_that_damage_is_noticed(pair: Pair) -> None:
    store, _, later = pair
    manifest = max(run_index.folder(store, later).glob("*.json"))
    manifest.write_text("{}")
    assert run_index.find(store, "latest") == later


def test_runs_and_trainings_keep_their_start(pair: Pair) -> None:
    store, earlier, later = pair
    header = from_payload(RunReader(run_index.folder(store, later)).header())
    made = (earlier, later, training_run.log_curve(store, header, []))
    starts = [next(RunReader(run_index.folder(store, run)).events()).wall[STARTED] for run in made]
    assert starts == sorted(set(starts)) and starts[-1] <= time.time_ns()


def test_a_run_of_an_older_version_counts_from_its_oldest_file(tmp_path: Path) -> None:
    for number, run in enumerate(("b", "a", "c")):
        write(tmp_path / "runs" / run, decisions=2, flush_events=20)
        touch(tmp_path / "runs" / run, 60.0 * (number - 5))
    (newest_file, *_) = sorted((tmp_path / "runs" / "b").glob("*.json"), reverse=True)
    newest_file.touch()
    os.utime(tmp_path / "runs" / "b")
    assert run_index.by_start(tmp_path, ["a", "b", "c"]) == ("b", "a", "c")
    first = tmp_path / "runs" / "c" / f"{0:020d}.parquet"
    first.write_bytes(b"damaged")
    os.utime(first, (0, 0))
    assert run_index.by_start(tmp_path, ["a", "b", "c"]) == ("c", "b", "a"), "damage to one hides no other"
    for run in "ab":
        touch(tmp_path / "runs" / run, 0.0)
        os.utime(tmp_path / "runs" / run / f"{0:020d}.parquet", (1, 1))
    assert run_index.by_start(tmp_path, ["b", "a"]) == ("a", "b"), "by name where the start is the same"
