"""Nodes that fail or are drained beside schedulers that change runs: by hand, in seconds, and work that is
conserved."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.sharing.elasticflow import ElasticEdf
from policy.sharing.registry import RECIPES
from policy.sharing.srtf import Srtf
from tests.support.sharing_worlds import sharing_worlds
from twin.nodes.outages import NodeOutages, SlowTime
from twin.queue.jobs import QueueJobs
from twin.sharing import engine, referee
from twin.sharing.changes import FREE, MURI, PPM, STEADY, ChangeRules
from twin.sharing.curves import SpeedCurve, SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.figures import sharing_figures
from twin.sharing.node_faults import NoticedOutages
from twin.sharing.speeds import MeasuredSpeeds
from twin.sharing.view import SharingScheduler

S = 10**9
LINEAR = SpeedCurve("linear", np.array([1, 8]), np.array([1.0, 8.0]))
Outage = tuple[int, int, int, str]
"""Node, begin, end, kind."""


def played(
    rows: list[tuple[int, int, int]], outages: list[Outage], *, scheduler: SharingScheduler | None = None,
    rules: ChangeRules = STEADY, nodes: int = 2, size: int = 8, slow: tuple[SlowTime, ...] = (),
    **faults: Any,
) -> SharedSchedule:  # fmt: skip
    """Jobs (submission, run, GPUs) that pause 10 s, on nodes with these outages."""
    jobs = QueueJobs.of_seconds(*zip(*rows, strict=True))
    none, curves = np.zeros(len(jobs)), SpeedCurves.of(jobs.processors, [LINEAR] * len(jobs), nodes * size)
    speeds = MeasuredSpeeds(none, np.zeros((len(jobs), 3)), curves)
    given_ = NodeOutages.of_rows(
        [(at, down * S, up * S, kind == "drain") for at, down, up, kind in outages], slow
    )
    world = SharingWorld(
        jobs, jobs.run_ns, np.full(len(jobs), 10 * S), nodes, size, rules, speeds,
        faults=NoticedOutages(given_, **faults),
    )  # fmt: skip
    return engine.play(world, scheduler or Srtf())


def events(done: SharedSchedule) -> list[tuple[float, str, int]]:
    return [(time / S, kind, job) for time, kind, job, *_ in referee.named(done.events)]


def test_a_fault_is_noticed_late_and_takes_the_work_after_the_last_checkpoint() -> None:
    outage: list[Outage] = [(0, 250, 400, "fault")]
    done = played([(0, 1000, 8)], outage, every_ns=100 * S, notice_ns=3 * S)
    assert events(done) == [
        (0, "start", 0), (250, "stall", 0), (253, "fault", 0), (253, "resume", 0), (1063, "end", 0),
    ]  # fmt: skip
    found = sharing_figures(done)
    assert (found.restarts, found.most_restarts, found.shrinks, found.preemptions) == (1, 1, 0, 0)
    assert found.lost_work_gpu_h == pytest.approx(50 * 8 / 3600)
    assert found.stalled_gpu_h == pytest.approx(3 * 8 / 3600)
    assert found.lost_gpu_h == pytest.approx(10 * 8 / 3600)
    assert found.availability == pytest.approx(1 - 150 * 8 / (16 * 1063))
    bare = played([(0, 1000, 8)], outage, notice_ns=3 * S)
    assert bare.end_ns.tolist() == [1263 * S]  # all is done again


def test_a_change_of_a_run_is_a_checkpoint() -> None:
    rows = [(0, 1000, 8), (200, 100, 8)]
    done = played(rows, [(0, 500, 600, "fault")], nodes=1)
    # preempted with 800 left, resumed at 300, from 310 on; 190 s of work are lost
    assert events(done)[-4:] == [(500, "stall", 0), (500, "fault", 0), (600, "resume", 0), (1410, "end", 0)]
    assert sharing_figures(done).lost_work_gpu_h == pytest.approx(190 * 8 / 3600)


def test_a_node_that_is_back_before_anybody_notices_takes_no_job_until_then() -> None:
    rows = [(0, 100, 4), (51, 10, 4)]
    done = played(rows, [(0, 50, 51, "fault")], nodes=1, notice_ns=3 * S, every_ns=S)
    assert events(done)[1:5] == [(50, "stall", 0), (53, "fault", 0), (53, "resume", 0), (53, "start", 1)]
    assert done.end_ns.tolist() == [(53 + 10 + 50) * S, 63 * S]


def test_a_job_that_ends_as_its_node_fails_has_ended() -> None:
    done = played([(0, 100, 8)], [(0, 100, 200, "fault")], nodes=1)
    assert events(done) == [(0, "start", 0), (100, "end", 0)]


def test_a_drained_node_lets_its_jobs_end_and_takes_none() -> None:
    rows = [(0, 100, 4), (50, 30, 4)]
    done = played(rows, [(0, 20, 200, "drain")], rules=FREE, nodes=1, size=4)
    assert events(done) == [(0, "start", 0), (100, "end", 0), (200, "start", 1), (230, "end", 1)]
    assert events(played(rows, [], rules=FREE, nodes=1, size=4))[1] == (50, "preempt", 0)


def test_a_job_of_several_nodes_shrinks_in_place_of_stopping() -> None:
    outage: list[Outage] = [(1, 200, 1000, "fault")]
    either = {"scheduler": ElasticEdf(), "size": 4, "notice_ns": 5 * S}
    done = played([(0, 1000, 8)], outage, shrinks=True, **either)  # type: ignore[arg-type]
    # 800 left at 200; half as fast from 215 on; worth a pause as the node is back: 407.5 left from 1010 on
    assert events(done) == [
        (0, "start", 0), (200, "stall", 0), (205, "shrink", 0), (205, "speed", 0), (1000, "resize", 0),
        (1417.5, "end", 0),
    ]  # fmt: skip
    found = sharing_figures(done)
    assert (found.restarts, found.shrinks, found.lost_work_gpu_h) == (0, 1, 0)
    either["scheduler"] = ElasticEdf()
    stopped = played([(0, 1000, 8)], outage, **either)  # type: ignore[arg-type]
    assert events(stopped)[2:4] == [(205, "fault", 0), (205, "resume", 0)]  # anew, on 4 GPUs
    assert sharing_figures(stopped).lost_work_gpu_h == pytest.approx(200 * 8 / 3600)


def test_a_job_leaves_a_slow_node_once_that_is_known_and_where_it_pays() -> None:
    slow = (SlowTime(0, 200 * S, 900 * S, 500_000),)
    done = played([(0, 1000, 8)], [], slow=slow, notice_slow_ns=60 * S)
    # 800 left at 200, 770 at 260; half as fast they last 770 s longer than two pauses
    assert events(done) == [
        (0, "start", 0), (200, "speed", 0), (260, "evict", 0), (260, "resume", 0), (1040, "end", 0),
    ]  # fmt: skip
    found = sharing_figures(done)
    assert (found.evictions, found.preemptions, found.lost_work_gpu_h) == (1, 0, 0)
    # 20 left at 980, that is 40 s there, 20 more than elsewhere: no more than two pauses
    short = played([(0, 1000, 8)], [], slow=(SlowTime(0, 980 * S, 2000 * S, 500_000),))
    assert short.end_ns.tolist() == [1020 * S]
    # No room elsewhere: it stays, at its own speed again from 900 on
    full = played([(0, 1000, 8)], [], slow=slow, nodes=1, notice_slow_ns=60 * S)
    assert full.end_ns.tolist() == [(900 + 450) * S] and sharing_figures(full).evictions == 0


def test_no_job_is_put_on_a_node_that_is_known_to_be_slow() -> None:
    slow = (SlowTime(0, 10 * S, 300 * S, 100_000),)
    done = played([(0, 5, 8), (50, 10, 8)], [], slow=slow, nodes=1, notice_slow_ns=20 * S)
    assert events(done)[2:] == [(300, "start", 1), (310, "end", 1)]
    # Nobody knows yet at 15 s: it runs there, and stays, as there is no other node
    early = played([(15, 10, 8)], [], slow=slow, nodes=1, notice_slow_ns=20 * S)
    assert early.end_ns.tolist() == [115 * S]


def test_rules_that_charge_every_event_go_without_faults() -> None:
    with pytest.raises(UsageError, match=r"--changes muri .* take steady, paid or free"):
        played([(0, 1, 1)], [], rules=MURI)


@given(
    world=sharing_worlds(most=8, rules=STEADY),
    name=st.sampled_from(("srtf", "elasticflow", "gandiva", "gavel", "lucid", "edf-elastic")),
)
@settings(max_examples=40, deadline=None)
def test_work_that_is_played_is_the_work_of_the_jobs_and_what_was_lost(
    name: str, world: SharingWorld
) -> None:
    done = engine.play(replace(world, goodput=None), RECIPES[name].make())
    left = world.jobs.run_ns.tolist()
    lost_by, played_by = [0] * len(left), [0] * len(left)
    since = dict[int, tuple[int, int]]()  # of a job that runs: from when it gets on, and its rate
    for time, kind, job, gpus, _, rate in referee.named(done.events):
        if job in since:
            begin, speed = since.pop(job)
            did = max(0, time - begin) * speed // PPM
            if kind == "end":
                assert did >= left[job] and max(0, time - 1 - begin) * speed // PPM < left[job]
                did = left[job]
            left[job], played_by[job] = left[job] - did, played_by[job] + did
        else:
            begin = 0
        if kind == "fault":
            assert 0 <= rate <= played_by[job] - lost_by[job]
            left[job], lost_by[job] = left[job] + rate, lost_by[job] + rate
        elif kind in ("resume", "resize", "move", "shrink"):
            since[job] = time + int(world.pause_ns[job]), rate
        elif gpus:
            since[job] = time if kind == "stall" else max(begin, time), rate
    ran = done.states.ended > 0
    assert [played_by[job] - lost_by[job] for job in np.flatnonzero(ran)] == world.jobs.run_ns[ran].tolist()


@given(
    world=sharing_worlds(most=4, rules=STEADY),
    name=st.sampled_from(("srtf", "lucid", "edf-elastic", "gandiva")),
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 400), st.sampled_from((100_000, 500_000))),
        min_size=1, max_size=3,
    ),
    notice_s=st.sampled_from((0, 10, 100)), rules=st.sampled_from((STEADY, FREE)),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_engine_and_referee_write_the_same_events_on_slow_nodes(
    world: SharingWorld, name: str, rows: list[tuple[int, int, int]], notice_s: int, rules: ChangeRules
) -> None:
    slow = tuple(
        SlowTime(node % world.nodes, begin * S, (begin + 30_000) * S, speed) for node, begin, speed in rows
    )
    faults = NoticedOutages(NodeOutages.of_rows([], slow), notice_slow_ns=notice_s * S)
    given_ = replace(world, faults=faults, rules=rules)
    done = engine.play(given_, RECIPES[name].make())
    assert referee.named(done.events) == referee.referee_events(given_, RECIPES[name].make())
