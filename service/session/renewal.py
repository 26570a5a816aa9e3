"""What a run of a service hands over to the one that takes its place.

A run is computed again from its log when a service starts: a restart takes the longer the older the run is. A
renewal ends the run and begins another that knows what this one knew: plan, orders, links of the last hour,
GPUs, jobs that wait, and which batches it has answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ingest.core.units import NS_PER_S
from replay.log.events import Event
from replay.store.decision_codec import plan_to_json
from service.session.account_book import AccountBook
from service.session.intake import Intake
from service.session.live_state import CHARGES, LiveState
from twin.world.observed_job import ObservedJob
from twin.world.observed_world import ObservedWorld

Json = dict[str, Any]
OVERLAP_NS = 3600 * NS_PER_S
"""Time 0 of the new run lies so long before its begin: samples that come late have a place in it."""
MOST_SAMPLES = 240
"""Samples of each link that are handed over: one in 15 seconds of the overlap."""


def origin_epoch_ns(before_ns: int, now_epoch_ns: int) -> int:
    """Returns time 0 of a new run: never before that of the run whose place it takes, unless the clock was
    wrong then."""
    early_ns = max(0, now_epoch_ns - OVERLAP_NS)
    return max(before_ns, early_ns) if before_ns <= now_epoch_ns else early_ns


def handed_over(
    run: str, requested: Json, world: ObservedWorld, state: LiveState, accounts: AccountBook, intake: Intake,
    shift_ns: int, begin_ns: int,
) -> Json:  # fmt: skip
    """Returns the payload of `run_continued`; time 0 of the new run is `shift_ns` later than that before.

    The new run begins at `begin_ns` of its own time. What a wrong clock has dated later is left out, sums
    that it has booked under later hours go to the present one.
    """
    now_s = (state.origin_epoch_ns + shift_ns + begin_ns) // NS_PER_S
    hours = dict[int, dict[str, float]]()
    for hour, sums in state.hours.items():
        into = hours.setdefault(min(hour, now_s // 3600), dict.fromkeys(CHARGES, 0.0))
        for name in CHARGES:
            into[name] += sums[name]
    return {
        "after": run, "client": requested["client"], "reason": requested["reason"],
        "links": _samples(state, shift_ns, begin_ns), "gpus": list(world.free_gpus),
        "jobs": [_job(world, job, shift_ns, begin_ns) for job in world.jobs.values()],
        "hours": [[hour, *(sums[name] for name in CHARGES)] for hour, sums in hours.items()],
        "months": {month: sums.to_json() for month, sums in accounts.months.items()},
        **intake.handed_over(shift_ns, begin_ns),
    }  # fmt: skip


def dated(changes: Iterable[Json], now_epoch_ns: int) -> list[Json]:
    """Returns changes of the queue, none of them later than now."""
    return [{**change, "epoch_ns": min(change["epoch_ns"], now_epoch_ns)} for change in changes]


def left_behind(run: str, reason: str, next_orders: Mapping[str, int], gpus: Sequence[int]) -> Json:
    """Returns the same for a run that cannot be computed again: of its jobs, the count of their orders alone.

    A job takes no order with a number that it has answered before.
    """
    jobs = [
        {
            "name": name, "ended": False, "tokens": 0, "slowdowns": [1.0] * len(gpus), "plan": None,
            "virtual": True, "since_ns": 0, "earlier": [], "next_order": number, "accounted_ns": 0,
        }
        for name, number in next_orders.items()
    ]  # fmt: skip
    return {
        "after": run, "client": "", "reason": reason, "links": [], "gpus": list(gpus), "jobs": jobs,
        "hours": [], "months": {}, "newest_ns": [], "answers": [],
    }  # fmt: skip


def next_orders(events: Iterable[Event], jobs: Iterable[str]) -> dict[str, int]:
    """Returns the number of the next order of each job, by the events of a run."""
    found = dict.fromkeys(jobs, 0)
    for event in events:
        if event.type == "order_given" and event.job in found:
            found[event.job] = event.payload["number"] + 1
    return found


def _job(world: ObservedWorld, job: ObservedJob, shift_ns: int, begin_ns: int) -> Json:
    """What is known of a job, in the time of the new run."""
    orders = job.orders
    slowdowns = [float(factor) for factor in world.glimpse_slowdown(job.name)]
    return {
        "name": job.name, "ended": not job.active, "tokens": job.tokens, "slowdowns": slowdowns,
        "plan": plan_to_json(orders.in_force), "virtual": orders.virtual,
        "since_ns": world.now_ns - orders.since_ns, "earlier": [plan_to_json(one) for one in orders.earlier],
        "next_order": orders.next_number,
        "accounted_ns": min(max(0, job.accounts.end_ns - shift_ns), begin_ns),
    }  # fmt: skip


def _samples(state: LiveState, shift_ns: int, begin_ns: int) -> list[list[float]]:
    """The last samples of every link in the time of the new run, in order; many are thinned out."""
    rows = list[list[float]]()
    for (i, j), kept in state.links.items():
        late = [
            [i, j, ns - shift_ns, bps, latency_s]
            for ns, bps, latency_s in kept
            if 0 <= ns - shift_ns <= begin_ns
        ]
        rows += late[:: -(-max(len(late), 1) // MOST_SAMPLES)]
    return sorted(rows, key=lambda row: row[2])
