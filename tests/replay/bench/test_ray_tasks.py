"""A bench over Ray stores and finds what one process does, also when a worker is killed on the way."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import TwinError, UsageError
from policy.core import ray_cluster
from replay.bench import bench as benchmark
from replay.bench import worker_pool
from replay.bench.cells import Cell, RunOutcome, run_cell
from replay.bench.ray_tasks import ATTEMPTS, RayExecutor
from replay.bench.result import Bench
from replay.bench.worker_pool import WorkerPool
from replay.bench.world import BenchWorld
from replay.log import recovery
from replay.log.run_log import RunReader
from replay.store import event_sinks, run_index
from tests.support import toys
from tests.support.worlds import toy_scenario

POLICIES = ("static", "greedy")
KILLED = "greedy"
TIMED = ("decision_", "coordination_", "late")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[Any]:
    """Ray on two CPUs of this machine, for all tests of this file: starting it takes seconds."""
    pytest.importorskip("ray", reason="Ray is the extra `ray`")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(ray_cluster.ADDRESS, raising=False)
        cluster = ray_cluster.RayCluster(2, "a test")
    yield cluster.module
    cluster.close()


def toy_cell(store: Path, cell: Cell) -> RunOutcome:
    """A cell of the toy world; the first attempt at one with `KILLED` is killed half-way."""
    with pytest.MonkeyPatch.context() as patch:
        toys.without_lake(patch)
        patch.setattr(event_sinks, "RunWriter", toys.SmallSegments)
        killed = store / "killed"
        if cell.policy == KILLED and not killed.exists():
            killed.touch()
            cell.world.run(store, cell.policy, reuse=True, progress=toys.Dying(500))
        return run_cell(store, cell)


def toy_bench(store: Path, **where: int) -> Bench:
    worlds = [BenchWorld.of(toy_scenario())]
    return benchmark.bench(store, POLICIES, worlds, seeds=2, with_bound=False, **where)


def untimed(shown: Any) -> Any:
    """The object of `twin bench --json` without the seconds that decisions took."""
    if isinstance(shown, dict):
        return {name: untimed(one) for name, one in shown.items() if not name.startswith(TIMED)}
    return [untimed(one) for one in shown] if isinstance(shown, list) else shown


def digests(store: Path) -> dict[str, str]:
    return {
        run: RunReader(run_index.folder(store, run)).digest()
        for run in run_index.all_ids(store)
        if RunReader(run_index.folder(store, run)).finished
    }


def test_a_bench_over_ray_is_that_of_one_process_though_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, over_ray = tmp_path / "alone", tmp_path / "ray"
    over_ray.mkdir()
    toys.without_lake(monkeypatch)
    expected = toy_bench(alone, jobs=1)
    monkeypatch.setattr(benchmark, "run_cell", toy_cell)
    found = toy_bench(over_ray, ray=2)
    assert (over_ray / "killed").exists()
    assert capsys.readouterr().out == ""  # what Ray says of the death would be in the middle of --json
    assert untimed(found.to_json()) == untimed(expected.to_json())
    assert digests(over_ray) == digests(alone)
    assert len(digests(alone)) == len(run_index.all_ids(over_ray)) == 4
    for run in run_index.all_ids(over_ray):
        assert recovery.sweep(run_index.folder(over_ray, run)) == (), "a commit of the killed worker is left"


def worker_of(store: Path, item: int) -> tuple[int, int]:
    return item, os.getpid()


def refused(store: Path, item: int) -> int:
    raise UsageError(f"item {item} is wrong")


def dies(store: Path, item: int) -> int:
    with (store / "attempts").open("a") as attempts:
        attempts.write(".")
    os._exit(9)


def test_results_come_in_order_from_other_processes_and_mistakes_as_they_were_raised(
    tmp_path: Path, ray: Any
) -> None:
    with worker_pool.over(tmp_path, None, 2) as pool:
        found = pool.each(worker_of, [3, 1, 2], "items")
        assert [item for item, _ in found] == [3, 1, 2] and os.getpid() not in {pid for _, pid in found}
        assert pool.each(worker_of, [], "items") == []
        assert pool.within(0.0, worker_of, [1, 2, 3, 4, 5, 6], "items")[-1] is None
        with pytest.raises(UsageError, match=r"^item \d is wrong$"):
            pool.each(refused, [1, 2, 3], "items")
    assert ray.is_initialized()  # this test had joined it before


def test_what_kills_every_worker_is_given_up(tmp_path: Path, ray: Any) -> None:
    pool = WorkerPool(tmp_path, 1, start=lambda count: RayExecutor(ray, count))
    with pytest.raises(TwinError, match=f"lost {ATTEMPTS} times on the Ray cluster.*finished is kept"):
        pool.each(dies, [1], "items")
    assert (tmp_path / "attempts").read_text() == "." * ATTEMPTS


def test_an_address_at_which_nothing_answers_is_refused_at_once(
    tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ray_cluster.ADDRESS, "127.0.0.1:1")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    refused = r"RAY_ADDRESS=127\.0\.0\.1:1: no Ray cluster .* answers there; start one"
    with pytest.raises(UsageError, match=refused), worker_pool.over(tmp_path, None, 2):
        pass
