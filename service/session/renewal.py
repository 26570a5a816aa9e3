"""What a run of a service hands over to the one that takes its place.

A run is computed again from its log when a service starts: a restart takes the longer the older the run is. A
renewal ends the run and begins another that knows what this one knew: plan, orders, links of the last hour,
GPUs, jobs that wait, and which batches it has answered.
"""

from collections.abc import Sequence
from typing import Any

from ingest.core.units import NS_PER_S
from replay.store.decision_codec import plan_to_json
from service.session.account_book import AccountBook
from service.session.intake import Intake
from service.session.live_state import CHARGES, LiveState
from twin.world.observed_world import ObservedWorld

Json = dict[str, Any]
OVERLAP_NS = 3600 * NS_PER_S
"""Time 0 of the new run lies so long before its begin: samples that come late have a place in it."""
MOST_SAMPLES = 240
"""Samples of each link that are handed over: one in 15 seconds of the overlap."""


def origin_epoch_ns(before_ns: int, now_epoch_ns: int) -> int:
    """Returns time 0 of a new run, never before that of the run whose place it takes."""
    return max(before_ns, now_epoch_ns - OVERLAP_NS)


def handed_over(
    run: str,
    requested: Json,
    world: ObservedWorld,
    state: LiveState,
    accounts: AccountBook,
    intake: Intake,
    shift_ns: int,
) -> Json:
    """Returns the payload of `run_continued`; time 0 of the new run is `shift_ns` later than that before."""
    orders = world.orders
    plan, earlier = plan_to_json(orders.in_force), [plan_to_json(one) for one in orders.earlier]
    return {
        "after": run, "client": requested["client"], "reason": requested["reason"],
        "links": _samples(state, shift_ns), "gpus": list(world.free_gpus),
        "slowdowns": [float(factor) for factor in world.glimpse_slowdown()], "plan": plan,
        "virtual": orders.virtual, "since_ns": world.now_ns - orders.since_ns, "earlier": earlier,
        "accounted_ns": max(0, world.accounts.end_ns - shift_ns),
        "next_order": orders.next_number, "tokens": world.tokens,
        **intake.handed_over(shift_ns),
        "hours": [[hour, *(sums[name] for name in CHARGES)] for hour, sums in state.hours.items()],
        "months": {month: sums.to_json() for month, sums in accounts.months.items()},
    }  # fmt: skip


def left_behind(run: str, reason: str, next_order: int, gpus: Sequence[int]) -> Json:
    """Returns the same for a run that cannot be computed again: of its state, the count of its orders alone.

    A job takes no order with a number that it has answered before.
    """
    nothing: Json = {
        "client": "", "links": [], "plan": None, "virtual": True, "since_ns": 0, "earlier": [],
        "accounted_ns": 0, "tokens": 0, "hours": [], "months": {}, "newest_ns": [], "answers": [],
    }  # fmt: skip
    known = {"after": run, "reason": reason, "next_order": next_order}
    return {**nothing, **known, "gpus": list(gpus), "slowdowns": [1.0] * len(gpus)}


def _samples(state: LiveState, shift_ns: int) -> list[list[float]]:
    """The last samples of every link in the time of the new run, in order; many are thinned out."""
    rows = list[list[float]]()
    for (i, j), kept in state.links.items():
        late = [[i, j, ns - shift_ns, bps, latency_s] for ns, bps, latency_s in kept if ns >= shift_ns]
        rows += late[:: -(-max(len(late), 1) // MOST_SAMPLES)]
    return sorted(rows, key=lambda row: row[2])
