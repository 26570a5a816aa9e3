"""Random small clusters of nodes with jobs that fit on them, and what both simulators make of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from policy.placement.registry import PLACEMENTS
from tests.support.queues import PLAYABLE, RECIPES
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, possible
from twin.queue import node_kernel, node_referee
from twin.queue.jobs import PREDICTIONS, QueueJobs
from twin.queue.referee import Promise, ignore

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
        user=column(-1, 2), priority=column(0, 2), deadline=column(1, 50),
    )  # fmt: skip
    name = draw(st.sampled_from(names))
    rules = draw(st.sampled_from(PLAYABLE[name]))
    kept = Demands(np.ascontiguousarray(asked.class_of[fit]), asked.wants, asked.tasks)
    return (
        jobs.select(fit), kept, cluster, placement, RECIPES[name], rules, draw(st.sampled_from(PREDICTIONS)),
        draw(st.integers(0, 5)),
    )  # fmt: skip


def both(case: tuple[Any, ...], promise: Promise = ignore) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns starts, who overtook, and places, of the kernel and of the referee, which says reservations."""
    jobs, asked, cluster, placement, recipe, rules, prediction, seed = case
    played = jobs.cut_at_estimate() if rules.cuts else jobs
    predicted = played.predicted_ns(prediction)
    keys = recipe.keys(played, predicted)
    site = node_kernel.site_of(cluster, asked, placement, seed)
    start, overtook = node_kernel.play(played, predicted, site, keys, recipe.backfill, rules)
    width = int(cluster.gpus.max())
    places = [
        [divmod(int(slot), width) for slot in site.slots[site.first[job] : site.first[job + 1]]]
        for job in range(len(jobs))
    ]
    referee = node_referee.play(
        played, predicted, cluster, asked, placement, keys, recipe.backfill, rules, seed, promise
    )
    return (start.tolist(), overtook.tolist(), places), referee
