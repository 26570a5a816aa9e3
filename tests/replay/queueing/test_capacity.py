"""The least machine for a target: by hand, against every size, on nodes, and where more is worse."""

from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from replay.logqueue.on_nodes import NEVER_OUT, compare_on_nodes
from replay.queueing import capacity
from replay.queueing.capacity import CapacityTarget, solve
from tests.support import queue_log
from twin.nodes.outage_plan import OutagePlan
from twin.queue.metrics import figures
from twin.queue.rules import INSTANT, PREDICTSIM
from twin.queue.simulation import simulate
from twin.workload.selection import select


def swf(folder: Path, rows: list[tuple[int, int, int]]) -> Path:
    """A log of (submit, run, processors)."""
    path = folder / "log.swf"
    lines = [
        f"{n} {submit} -1 {run} {size} -1 -1 {size} {run} -1 1 1 -1 -1 1 -1 -1 -1"
        for n, (submit, run, size) in enumerate(rows, 1)
    ]
    path.write_text("\n".join(("; MaxProcs: 100", *lines, "")))
    return path


def test_by_hand(tmp_path: Path) -> None:
    log = swf(tmp_path, [(0, 100, 2)] * 6)  # N // 2 at once
    found = solve(log, CapacityTarget.parse("max_wait=1.5min"), ["fcfs"], rules=INSTANT)
    assert found.answers[0].gpus == 12 and found.least == 2  # with 11 the sixth waits 100 s
    found = solve(log, CapacityTarget.parse("max_wait=100"), ["fcfs"], rules=INSTANT)
    assert found.answers[0].gpus == 6 and found.answers[0].monotone
    assert {size: met for size, _, met in found.answers[0].tried}[5] is False


@pytest.mark.parametrize("policy", ["fcfs", "easy", "saf+easy"])
def test_no_smaller_size_next_to_the_answer_meets_the_target(policy: str) -> None:
    from ingest.readers import job_logs

    target = CapacityTarget("p95_wait_s", 3600)
    found = solve(queue_log.TARGET, target, [policy], rules=PREDICTSIM).answers[0]
    jobs = select(job_logs.read(queue_log.TARGET), PREDICTSIM).jobs
    for size in range(max(64, found.gpus - 8), found.gpus + 1):
        done = simulate(jobs, size, recipe(policy), rules=PREDICTSIM)
        assert target.met(figures(done)) == (size == found.gpus)


def test_a_size_that_is_better_than_a_larger_one_is_told() -> None:
    found = solve(queue_log.TARGET, CapacityTarget("p95_wait_s", 3600), ["saf+easy"], rules=PREDICTSIM)
    mine = found.answers[0]
    missed = [size for size, _, met in mine.tried if size > mine.gpus and not met]
    assert mine.monotone == (not missed)


def test_faults_are_drawn_for_each_size(tmp_path: Path) -> None:
    log = swf(tmp_path, [(0, 3600, 8)] * 6)
    target = CapacityTarget.parse("avg_jct=2h")
    plan = OutagePlan(mtbf_s=7200, mttr_s=1800, seed=1, checkpoint_interval_s=300)
    calm, mine = (
        solve(log, target, ["fcfs"], nodes="2 x 8 A100-80", rules=INSTANT, outages=one).answers[0]
        for one in (NEVER_OUT, plan)
    )
    assert calm.nodes is not None and mine.nodes is not None and calm.nodes < mine.nodes
    named = f"{mine.nodes} x 8 A100-80"
    direct = compare_on_nodes(log, named, ["fcfs"], rules=INSTANT, outages=plan).figures
    assert mine.figures == next(iter(direct.values())).of_pool
    with pytest.raises(UsageError, match="say --mtbf-h"):
        solve(log, target, nodes="2 x 8 A100-80", rules=INSTANT, outages=OutagePlan(file=log))


def test_nodes_of_the_first_group_are_counted(tmp_path: Path) -> None:
    log = swf(tmp_path, [(0, 100, 8)] * 4 + [(0, 100, 16)])
    target = CapacityTarget.parse("max_wait=0s")
    mine = solve(log, target, ["fcfs"], nodes="3 x 8 A100-80, 1 x 8 V100", rules=INSTANT).answers[0]
    # four nodes for the single ones, two of one model for the gang: best fit leaves the V100 for last
    assert (mine.nodes, mine.gpus) == (6, 56) and mine.to_json("max_wait_s")["nodes"] == 6


def test_what_no_machine_reaches_and_what_is_no_target() -> None:
    with pytest.raises(UsageError, match="even where nobody waits"):
        solve(queue_log.TARGET, CapacityTarget.parse("avg_jct=1s"), rules=PREDICTSIM)
    for text, words in {
        "p95_wait": "write FIGURE=VALUE", "p95_wai=1h": "did you mean 'p95_wait'",
        "p95_wait=1y": "s, min, h or d",
        "avg_bounded_slowdown=2h": "a number without a unit", "p95_wait=1..2": "is no number",
    }.items():  # fmt: skip
        with pytest.raises(UsageError, match=words):
            CapacityTarget.parse(text)
    assert capacity.CapacityTarget.parse("p95_wait = 2 h") == CapacityTarget("p95_wait_s", 7200)
