"""Small worlds of a queue over sites: by hand, and drawn at random."""

import numpy as np
from hypothesis import strategies as st

from tests.support.queues import queues
from twin.queue.jobs import QueueJobs
from twin.sites.inputs import SiteCarbon, SiteChoice, SiteJobs, SiteLinks, SiteOptions, joined, single_sites
from twin.sites.simulation import SiteWorld

S = 10**9
SITES = 3


def choice(rule: str) -> SiteChoice:
    return SiteChoice(rule, "", "")  # type: ignore[arg-type]


def links(*steps: tuple[int, list[list[int]]], price: int = 20) -> SiteLinks:
    at, kb_s = zip(*steps, strict=True)
    size = len(kb_s[0])
    prices = np.full((size, size), price, np.int64) * (1 - np.eye(size, dtype=np.int64))
    return SiteLinks(np.array(at, np.int64) * S, np.array(kb_s, np.int64), prices)


def world(gpus: list[int], over: SiteLinks, options: SiteOptions) -> SiteWorld:
    return SiteWorld(tuple("abc"[: len(gpus)]), np.array(gpus, np.int64), over, options)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[QueueJobs, SiteJobs, SiteWorld]:
    """Jobs of 1 to 8 GPUs, three sites of 3 to 8 of which each size fits somewhere, links that die and come
    back alive at the end."""
    jobs = draw(queues(14))
    gpus = np.array([8, draw(st.integers(3, 8)), draw(st.integers(3, 8))])
    steps = draw(st.integers(1, 5))
    at = np.concatenate(([0], np.cumsum([draw(st.integers(1, 30)) for _ in range(steps - 1)])))
    speeds = st.sampled_from((0, 1, 3, 10, 1000))
    table = [[[draw(speeds) for _ in range(SITES)] for _ in range(SITES)] for _ in range(steps)]
    kb_s = np.array(table, np.int64)
    kb_s[-1] = np.maximum(kb_s[-1], 1)
    price = np.array([[draw(st.integers(0, 3)) for _ in range(SITES)] for _ in range(SITES)], np.int64)
    sizes = np.arange(1, 9)
    alone = single_sites(sizes, gpus, steps)
    spans, first = list[list[int]](), [0]
    for size in sizes.tolist():
        if size % 2 == 0 and size // 2 <= gpus.min() and draw(st.booleans()):
            spans += [[size // 2, size // 2, 0], [0, size // 2, size // 2]]
        first.append(len(spans))
    rates = np.array(
        [[draw(st.sampled_from((0, 1, 333, 900))) for _ in spans] for _ in range(steps)], np.int64
    )
    rates = rates.reshape(steps, len(spans))
    rates[-1] = np.maximum(rates[-1], 1)
    need = np.array(spans, np.int64).reshape(-1, SITES)
    homes = (need > 0).argmax(axis=1).astype(np.int64) if len(need) else need[:, 0]
    over = SiteOptions(
        np.array(first, np.int64), need, homes, rates,
        np.array([draw(st.integers(0, 2)) for _ in spans], np.int64),
    )  # fmt: skip
    count = len(jobs)
    asked = SiteJobs(
        (jobs.processors - 1).astype(np.int64),
        np.array([draw(st.sampled_from((0, 5, 50))) for _ in range(count)], np.int64),
        np.array([draw(st.integers(-1, SITES - 1)) for _ in range(count)], np.int64),
    )
    made = SiteWorld(
        ("a", "b", "c"), gpus, SiteLinks(at.astype(np.int64) * S, kb_s, price), joined(alone, over),
        SiteCarbon(np.array([0, 7, 30]) * S, np.array([[300, 100, 200], [50, 100, 200], [300, 0, 1]])),
    )  # fmt: skip
    return jobs, asked, made
