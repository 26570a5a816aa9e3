"""Random small worlds of changing jobs."""

import numpy as np
from hypothesis import strategies as st

from tests.support.goodput_jobs import APPLICATIONS, goodput_of
from twin.nodes.outages import NodeOutages, SlowTime
from twin.queue.jobs import QueueJobs
from twin.sharing.changes import CHANGES, ChangeRules, pauses_ns
from twin.sharing.curves import SpeedCurve, SpeedCurves
from twin.sharing.engine import SharingWorld
from twin.sharing.kinds import NodeKinds
from twin.sharing.node_faults import NoticedOutages
from twin.sharing.speeds import MeasuredSpeeds
from twin.sharing.uplinks import Uplinks, patterns_of

STAGES = ((0, 0, 0), (446, 8, 0), (1, 160, 18), (87, 67, 131), (30, 30, 30))
"""Stages of iterations, milliseconds; zeros: not measured."""
CURVES = (
    SpeedCurve("linear", np.array([1, 8]), np.array([1.0, 8.0])),
    SpeedCurve("bending", np.array([1, 2, 4, 8]), np.array([1.0, 1.8, 2.9, 2.8])),
)

S = 10**9
LONGEST_PAUSE_S = 46
"""Of `pauses_ns`; under `paid` one who is asked more often than that may restart jobs for ever."""


@st.composite
def sharing_worlds(
    draw: st.DrawFn, most: int = 16, rules: ChangeRules | None = None, longest_s: int = 20_000
) -> SharingWorld:
    """Jobs of seconds to hours on a few nodes; small ranges make ties of all kinds common."""
    count = draw(st.integers(1, most))
    sizes = np.array(draw(st.sampled_from(((8,), (4, 4), (2, 2, 2), (2, 4, 2)))))
    nodes, size = len(sizes), int(sizes.max())

    def column(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    top = draw(st.sampled_from([one for one in (5, 400, 20_000) if one <= longest_s]))
    run, more = column(1, top), column(0, top)
    jobs = QueueJobs.of_seconds(
        column(0, draw(st.sampled_from((0, 5, 2 * top)))), run, column(1, int(sizes.sum())),
        [one + extra for one, extra in zip(run, more, strict=True)], deadline=column(-1, 3 * top),
        priority=column(0, 1),
    )  # fmt: skip
    models = draw(st.lists(st.sampled_from(("bert", "a2c", None)), min_size=count, max_size=count))
    chosen = rules or draw(st.sampled_from(list(CHANGES.values())))
    stages = np.array(draw(st.lists(st.sampled_from(STAGES), min_size=count, max_size=count)), np.float64)
    curves = draw(st.lists(st.sampled_from((None, *CURVES)), min_size=count, max_size=count))
    speeds = MeasuredSpeeds(
        stages.sum(axis=1), stages, SpeedCurves.of(jobs.processors, curves, int(sizes.sum()))
    )
    slow = draw(st.sampled_from((None, 250_000, 900_001)))
    kinds = None
    if slow is not None:
        speed = np.tile(np.array([1_000_000, slow]), (count, 1))
        kinds = NodeKinds(("fast", "slow"), np.arange(nodes) % 2, speed)
    goodput = None
    if not chosen.charges_events and draw(st.booleans()):
        speeds = MeasuredSpeeds(speeds.iteration, stages, SpeedCurves.rigid(jobs.processors))
        of_node, of_job = np.arange(nodes) % 2, np.arange(count) % len(APPLICATIONS)
        goodput = goodput_of(
            jobs.run_ns,
            of_node,
            of_job,
            tuned=draw(st.booleans()),
            refresh_s=max(top // 7, LONGEST_PAUSE_S + 4),
            samples=20.0 * top,
        )
    uplinks = None
    if nodes > 1 and goodput is None and draw(st.booleans()):
        uplinks = Uplinks.oversubscribed(np.arange(nodes) % 2, 1.5, patterns_of(speeds.iteration, stages))
    return SharingWorld(
        jobs, jobs.estimate_ns, pauses_ns(models, jobs.processors), nodes, size, chosen, speeds, kinds, sizes,
        goodput, uplinks, None if chosen.charges_events else draw(node_faults(nodes, top)),
    )  # fmt: skip


@st.composite
def node_faults(draw: st.DrawFn, nodes: int, top: int) -> NoticedOutages | None:
    """No faults, or a few outages of nodes, some at once or within another, some noticed after they end."""
    if draw(st.booleans()):
        return None
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        down_s, lasts_s = draw(st.integers(0, 2 * top)), draw(st.integers(1, top))
        rows.append(
            (draw(st.integers(0, nodes - 1)), down_s * S, (down_s + lasts_s) * S, draw(st.booleans()))
        )
    every_s = draw(st.sampled_from((0, 1, max(1, top // 5))))
    notice_s = draw(st.sampled_from((0, 3, max(1, top // 2))))
    slow = []
    for _ in range(draw(st.integers(0, 2))):
        begin_s, lasts_s = draw(st.integers(0, 2 * top)), draw(st.integers(1, 2 * top))
        speed = draw(st.sampled_from((1, 300_000, 999_999)))
        slow.append(SlowTime(draw(st.integers(0, nodes - 1)), begin_s * S, (begin_s + lasts_s) * S, speed))
    return NoticedOutages(
        NodeOutages.of_rows(rows, tuple(slow)), every_s * S, notice_s * S,
        draw(st.sampled_from((0, 5, max(1, top // 2)))) * S, draw(st.booleans()),
    )  # fmt: skip
