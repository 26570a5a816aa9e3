from itertools import pairwise
from pathlib import Path

import pytest

from replay.live.pace import Pace
from replay.live.run_snapshot import RunSnapshot
from replay.live.run_state import RunState
from replay.log.fold import fold
from replay.log.run_log import RunReader
from replay.metrics.kpis import of_events
from replay.run import runner
from replay.store import run_index
from replay.store.event_sinks import Collect, Watched
from tests.support import toys
from tests.support.worlds import toy_scenario


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, RunState]:
    """A watched run of the toy world."""
    store, state = tmp_path_factory.mktemp("store"), RunState()
    with pytest.MonkeyPatch.context() as patch:
        toys.without_lake(patch)
        done = runner.run(store, policy="greedy", scenario=toy_scenario(), watch=state)
    return store, done.run_id, state


def test_watching_changes_no_byte_of_a_run(
    seen: tuple[Path, str, RunState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.without_lake(monkeypatch)
    store, run_id, _ = seen
    alone = toys.toy_run(tmp_path)
    assert alone.digest == RunReader(run_index.folder(store, run_id)).digest()


def test_the_log_folds_to_the_state_that_was_seen_while_it_was_written(
    seen: tuple[Path, str, RunState],
) -> None:
    store, run_id, state = seen
    events = list(RunReader(run_index.folder(store, run_id)).events())
    read = fold(events, RunState()).latest
    assert read == state.latest and read is not None and read.finished
    assert read.kpis == of_events(events)


def test_a_snapshot_holds_links_plan_decisions_and_figures(seen: tuple[Path, str, RunState]) -> None:
    run = seen[2].latest
    assert run is not None and (run.scenario, run.policy, run.end_s) == ("toy-3", "greedy", 600)
    assert [(link.src, link.dst) for link in run.links] == [
        (f"d{i}", f"d{j}") for i in range(3) for j in range(3) if i != j
    ]
    link = run.links[0]
    assert link.observed_bps == pytest.approx(toys.BPS, rel=0.5) and run.horizon_s == 300.0
    assert link.estimated_bps is not None and link.forecast_bps is not None and link.latency_s is not None
    (plan,) = run.plans
    assert sum(share.layers for share in plan.shares) == len(
        toys.prepare(toy_scenario(), Path()).job.model.layers()
    )
    numbers = [decision.number for decision in run.decisions]
    assert numbers == list(range(run.kpis.decisions))[-8:] and all(one.reason for one in run.decisions)
    assert run.kpis.tokens > 0 and run.kpis.energy_j > 0


def test_links_that_carry_traffic_and_dead_links_are_marked(seen: tuple[Path, str, RunState]) -> None:
    """The log up to an iteration between two sites, then a failure of a link."""
    store, run_id, _ = seen
    state, carried = RunState(), set()
    for one in RunReader(run_index.folder(store, run_id)).events():
        state.add(one)
        if one.type == "iteration_done" and one.payload["wan_bytes"]:
            carried = {(f"d{i}", f"d{j}") for i, j, _ in one.payload["wan_bytes"]}
            break
    assert carried and {(link.src, link.dst) for link in state.snapshot().links if link.used} == carried
    sink = Watched(Collect(), state)
    sink.append(one.sim_ns, "link_failed", {"src": 0, "dst": 1})
    assert [link.failed for link in state.snapshot().links][:2] == [True, False]
    sink.append(one.sim_ns, "link_restored", {"src": 0, "dst": 1})
    assert not any(link.failed for link in state.snapshot().links)


def test_snapshots_are_as_far_apart_as_asked_and_take_no_more_than_their_share(
    seen: tuple[Path, str, RunState],
) -> None:
    """A snapshot takes 1 s, and each event comes 5 s later: 2 % of the time is a snapshot every 51 s."""
    store, run_id, _ = seen
    now, made = [0.0], []

    class Slow(RunState):
        def snapshot(self) -> RunSnapshot:
            made.append(now[0])
            now[0] += 1.0
            return super().snapshot()

    state = Slow(every_s=0.5, clock=lambda: now[0])
    for one in RunReader(run_index.folder(store, run_id)).events():
        now[0] += 5.0
        state.add(one)
    apart = [after - before for before, after in pairwise(made[:-1])]
    assert set(apart) == {51.0} and len(apart) > 1  # the last one is due to the end


def test_the_time_left_is_that_of_the_pace_so_far() -> None:
    now = [100.0]
    pace = Pace(lambda: now[0])
    assert pace.share is None and pace.left_s is None
    pace.start(400, "mpc")
    now[0] += 30.0
    assert pace.left_s is None  # no step yet
    pace.advance(100, "0.5 h")
    assert (pace.share, pace.elapsed_s, pace.left_s, pace.note) == (0.25, 30.0, 90.0, "0.5 h")
    pace.start(None, "unknown length")
    pace.advance()
    assert pace.share is None and pace.left_s is None
