"""Random small clusters of nodes with jobs that fit on them, and what both simulators make of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ingest.core.units import NS_PER_S
from policy.placement.registry import PLACEMENTS
from tests.support.queues import PLAYABLE, RECIPES
from twin.nodes import kernel, referee
from twin.nodes.faults import faults_of, interruptions
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.outages import NO_OUTAGES, NodeOutages
from twin.nodes.sleeping import SleepRule, sleepers
from twin.nodes.state import site_of
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, possible
from twin.queue.jobs import PREDICTIONS, QueueJobs
from twin.queue.referee import Happening, Promise, ignore

MODELS = ("A100", "V100", "T4")


@st.composite
def clusters(draw: st.DrawFn) -> NodeCluster:
    """One to six nodes of one to four GPUs, of up to three models and racks, with or without CPU."""
    count = draw(st.integers(1, 6))
    gpus = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    models = draw(st.lists(st.sampled_from(MODELS), min_size=count, max_size=count))
    racks = draw(st.one_of(st.none(), st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    if not draw(st.booleans()):
        return NodeCluster.of_nodes(gpus, models, racks=racks)
    cpu = draw(st.lists(st.integers(2, 9), min_size=count, max_size=count))
    return NodeCluster.of_nodes(gpus, models, [1000 * one for one in cpu], [64 * one for one in cpu], racks)


@st.composite
def demands(draw: st.DrawFn, cluster: NodeCluster, count: int) -> Demands:
    """Jobs of zero to six GPUs, or a share of one, of any model or of some."""
    known = "|".join(cluster.models[:1]), "|".join(cluster.models[-2:]), ""
    gpus = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    share = draw(st.lists(st.sampled_from((200, 350, 500, 1000, 1000)), min_size=count, max_size=count))
    milli = [one if size == 1 else 1000 for one, size in zip(share, gpus, strict=True)]
    cpu = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    models = draw(st.lists(st.sampled_from(known), min_size=count, max_size=count))
    return Demands.of_jobs(
        cluster, gpus, milli, [700 * one for one in cpu], [40 * one for one in cpu], models
    )


@st.composite
def cases(draw: st.DrawFn, most: int = 16, names: Sequence[str] = tuple(RECIPES)) -> tuple[Any, ...]:
    """Jobs that fit, demands, cluster, placement, recipe, rules, prediction and seed."""
    cluster = draw(clusters())
    count = draw(st.integers(1, most))
    placement = draw(st.sampled_from(list(PLACEMENTS.values())))
    asked = draw(demands(cluster, count))
    fit = possible(cluster, asked.wants, placement.gang)[asked.class_of]
    top = draw(st.sampled_from((3, 12, 300)))

    def column(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    run = column(1, top)
    estimate = [max(1, one + extra) for one, extra in zip(run, column(-1, top), strict=True)]
    jobs = QueueJobs.of_seconds(
        sorted(column(0, draw(st.sampled_from((0, 5, 2 * top))))), run,
        np.maximum(asked.wants.gpus, 1)[asked.class_of], estimate,
        user=column(-1, 2), account=column(0, 2), priority=column(0, 2), deadline=column(1, 50),
    )  # fmt: skip
    name = draw(st.sampled_from(names))
    rules = draw(st.sampled_from(PLAYABLE[name]))
    kept = Demands(np.ascontiguousarray(asked.class_of[fit]), asked.wants, asked.tasks)
    return (
        jobs.select(fit), kept, cluster, placement, RECIPES[name], rules, draw(st.sampled_from(PREDICTIONS)),
        draw(st.integers(0, 5)),
    )  # fmt: skip


@st.composite
def outages(draw: st.DrawFn, nodes: int) -> NodeOutages:
    """Up to eight faults and drains, which may overlap, in whole seconds."""
    rows = []
    for _ in range(draw(st.integers(0, 8))):
        down, lasts = draw(st.integers(0, draw(st.sampled_from((6, 30, 400))))), draw(st.integers(1, 20))
        node, drain = draw(st.integers(0, nodes - 1)), draw(st.booleans())
        rows.append((node, down * NS_PER_S, (down + lasts) * NS_PER_S, drain))
    return NodeOutages.of_rows(rows)


def both(
    case: tuple[Any, ...], promise: Promise = ignore, out: NodeOutages = NO_OUTAGES, interval_s: int = 0,
    sleep: SleepRule | None = None,
) -> tuple[NodeSchedule, list[Happening]]:  # fmt: skip
    """Returns the schedule of the kernel, and what happened in the referee, which says reservations."""
    jobs, asked, cluster, placement, recipe, rules, prediction, seed = case
    played = jobs.cut_at_estimate() if rules.cuts else jobs
    predicted = played.predicted_ns(prediction)
    keys = recipe.keys(played, predicted)
    asleep = sleepers(sleep, len(cluster), played.submit_ns)
    site = site_of(cluster, asked, placement, seed, asleep)
    faults = faults_of(out, len(cluster), interval_s * NS_PER_S, 16 * len(jobs), 400 * len(jobs))
    start, overtook = kernel.play(played, predicted, site, keys, recipe.backfill, rules, faults)
    broken, happened = interruptions(faults, site.first), list[Happening]()
    done = NodeSchedule(
        played, cluster, asked, start, overtook, site.first, site.slots, out, broken,
        interval_s * NS_PER_S, asleep.woke,
    )  # fmt: skip
    referee.play(
        played, predicted, cluster, asked, placement, keys, recipe.backfill, rules, seed, promise, out,
        interval_s * NS_PER_S, happened, sleep,
    )  # fmt: skip
    return done, happened
