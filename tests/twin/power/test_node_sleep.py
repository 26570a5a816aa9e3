"""Nodes that sleep: energy and accounts by hand, in whole milliwatts and seconds, and the kernel against the
referee."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.placement.registry import placement
from policy.queue.registry import recipe
from tests.support.event_streams import of_kernel, of_referee
from tests.support.node_queues import both, cases
from tests.support.queues import RECIPES
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.runs import runs_of
from twin.nodes.sleeping import SleepRule
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.power.accounts import accounts, charged, totals
from twin.power.conversion import NOTHING_LOST, ConversionChain, Overhead
from twin.power.node_power import added_mw, gpu_powers, node_site_power
from twin.power.node_sleep import NodeSleep, asleep
from twin.power.site_power import SitePower
from twin.queue.jobs import QueueJobs

S = 10**9
TWO = NodeCluster.parse("2 x 4 A100-80")
PLAIN = [name for name, one in RECIPES.items() if one.backfill != "conservative"]


def site_power_of(
    done: NodeSchedule, chain: ConversionChain = NOTHING_LOST, sleep: NodeSleep | None = None
) -> SitePower:
    return node_site_power(done, runs_of(done), chain, sleep)[1]


def played(
    rows: list[tuple[int, int, int]], rule: SleepRule | None, policy: str = "easy", **more: Any
) -> NodeSchedule:
    """Jobs (submission, run, GPUs) on two nodes of four."""
    jobs = QueueJobs.of_seconds(*zip(*rows, strict=True), **more)
    asked = Demands.of_jobs(TWO, jobs.processors)
    return simulate_on_nodes(jobs, asked, TWO, recipe(policy), placement("first-fit"), sleep=rule)


ROWS = [(0, 100, 4), (300, 50, 4), (320, 50, 8)]


def test_a_job_waits_until_all_its_nodes_are_awake() -> None:
    done = played(ROWS, SleepRule(60 * S, 20 * S))
    # The first node is free from 100 to 300, asleep from 160: 20 s, then 50 s of work. The second one has
    # slept since 60; as the third job wants both at 370, it wakes, and the first one waits for it.
    assert (done.start_ns // S).tolist() == [0, 300, 370] and (done.end_ns // S).tolist() == [100, 370, 440]
    assert done.woke_ns is not None and (done.woke_ns // S).tolist() == [0, 20, 20]
    assert (done.in_gpus.start_ns // S).tolist() == [0, 320, 390]  # waiting for a node is waiting
    node, begins, ends = asleep(done, SleepRule(60 * S), 0, 440 * S)
    found = zip(node.tolist(), (begins // S).tolist(), (ends // S).tolist(), strict=True)
    assert list(found) == [(0, 160, 300), (1, 60, 370)]


def test_energy_and_accounts_are_exact_to_the_picojoule() -> None:
    sleep = NodeSleep(SleepRule(60 * S, 20 * S), 10_000, 200_000)
    done = played(ROWS, sleep.rule)
    (model,) = gpu_powers(TWO)
    power = site_power_of(done, sleep=sleep)
    gpu_s_idle = 440 * 8 - 140 * 4 - 310 * 4 - 20 * 4 - 20 * 4  # neither asleep nor waking
    by_hand_mj = (
        gpu_s_idle * model.idle_mw + (140 + 310) * 4 * 10_000 + (20 + 20) * 4 * 200_000
        + (100 * 4 + 50 * 4 + 50 * 8) * model.job_mw
    )  # fmt: skip
    assert power.meter.integral == by_hand_mj * S
    assert added_mw(done, runs_of(done)).tolist() == [4 * model.job_mw, 4 * model.job_mw, 8 * model.job_mw]
    for chain in (ConversionChain(), ConversionChain((Overhead("PUE", 1.3),))):
        metered = site_power_of(done, chain, sleep)
        ledger = accounts(charged(done.in_gpus, metered), ["a", "b", "a"])
        assert totals(ledger).energy_pj == metered.meter.integral


def test_sleep_without_waking_changes_no_schedule() -> None:
    plain, slept = played(ROWS, None), played(ROWS, SleepRule(60 * S))
    assert plain.start_ns.tolist() == slept.start_ns.tolist()
    assert plain.end_ns.tolist() == slept.end_ns.tolist()
    idle, saved = site_power_of(plain), site_power_of(slept, sleep=NodeSleep(SleepRule(60 * S)))
    (model,) = gpu_powers(TWO)
    begin_ns, end_ns = int(plain.jobs.submit_ns.min()), int(plain.end_ns.max())
    _, begins, ends = asleep(plain, SleepRule(60 * S), begin_ns, end_ns)
    slept_ns = int((ends - begins).sum())
    assert idle.meter.integral - saved.meter.integral == slept_ns * 4 * model.idle_mw


def test_a_job_that_has_to_wake_a_node_must_not_delay_the_head() -> None:
    # The head wants both nodes at 200 s. The last job asks for 90 s at 105 s, in time, but for the 20 s in
    # which the second node wakes.
    rows = [(0, 200, 4), (100, 50, 8), (105, 90, 4)]
    assert played(rows, SleepRule(60 * S)).backfilled.tolist() == [False, False, True]
    late = played(rows, SleepRule(60 * S, 20 * S))
    assert (late.start_ns // S).tolist() == [0, 200, 270]
    assert late.woke_ns is not None and (late.woke_ns // S).tolist() == [0, 20, 0]


def test_words_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(UsageError, match="sleeps after a time without jobs"):
        SleepRule(0)
    with pytest.raises(UsageError, match="conservative: nodes that wake go without outages"):
        played(ROWS, SleepRule(S, S), "conservative")
    with pytest.raises(UsageError, match="say less for --sleep-power"):
        site_power_of(played(ROWS, SleepRule(S)), sleep=NodeSleep(SleepRule(S), 10**6))


@given(case=cases(names=PLAIN), after_s=st.integers(1, 40), wake_s=st.integers(1, 15))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kernel_and_referee_have_the_same_events_when_nodes_sleep(
    case: tuple[Any, ...], after_s: int, wake_s: int
) -> None:
    done, happened = both(case, sleep=SleepRule(after_s * S, wake_s * S))
    assert of_kernel(done) == of_referee(happened, done)
    assert done.woke_ns is not None and np.isin(done.woke_ns, (0, wake_s * S)).all()
