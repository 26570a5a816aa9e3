"""`history-hour` follows the hours of the past where moving pays, and is `history` where it does not."""

from collections.abc import Sequence

from policy.baselines.history import History
from policy.baselines.history_hour import HistoryHour
from policy.control.knobs import default_knobs
from policy.core.protocol import Context
from tests.support.pasts import days
from tests.support.plays import play
from tests.support.views import flat, view
from tests.support.worlds import toy_setup
from twin.core.facts import Trigger
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.scenario.prepare import PreparedScenario

HOUR_S = 3600.0
WIDE, NARROW, SLOW = 5e10, 5e8, 1e8
HALVES = [WIDE] * 12 + [NARROW] * 12
"""Two domains are best by night, one by day; a move in a narrow hour takes a quarter of it."""


def started(policy: History, setup: PreparedScenario, known: LinkHistory | None) -> History:
    policy.reset(Context(setup.estimator(), 60.0, 11.35, (1.0, 0.0, 0.0), generator(0, "policy"), known))
    return policy


def world(hourly_bps: Sequence[float]) -> PreparedScenario:
    """Links whose bandwidth changes by the hour, from hour 0 on; a decision every half hour."""
    steps = [(HOUR_S * hour, bps) for hour, bps in enumerate(hourly_bps) if hour]
    control = {"period_s": 1800, "horizons_s": [0, 60, 300]}
    return toy_setup(
        2, bps=hourly_bps[0], latency_s=0.001, seconds=HOUR_S * len(hourly_bps), control=control,
        steps={(0, 1): steps, (1, 0): steps},
    )  # fmt: skip


def placements(setup: PreparedScenario, policy: History) -> list[tuple[float, Plan]]:
    """Hour and plan of each change of placement that was decided."""
    used: list[tuple[float, Plan]] = []

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        plan = policy.decide(trigger.view).plan
        if plan is not None and (
            not used or default_knobs(setup.job, used[-1][1]) != default_knobs(setup.job, plan)
        ):
            used.append((trigger.view.now_ns / 1e9 / HOUR_S, plan))
        return plan

    play(setup, answer)
    return used


def test_it_follows_the_halves_of_the_day_where_moving_pays() -> None:
    setup = world([*HALVES, WIDE, WIDE])
    used = placements(setup, started(HistoryHour(), setup, days(HALVES)))
    assert [len(plan.shares) for _, plan in used] == [2, 1, 2]
    assert [int(hour) for hour, _ in used] == [0, 12, 24]
    assert len(placements(setup, started(History(), setup, days(HALVES)))) == 1


def test_it_stays_where_moving_does_not_pay() -> None:
    hourly = [WIDE, SLOW] * 12
    setup = world(hourly[:5])
    (stays,) = placements(setup, started(HistoryHour(), setup, days(hourly)))
    (best,) = placements(setup, started(History(), setup, days(hourly)))
    assert default_knobs(setup.job, stays[1]) == default_knobs(setup.job, best[1])


def test_with_less_than_a_week_it_is_history_and_says_so() -> None:
    setup = world([WIDE, NARROW, WIDE])
    for known in (days(HALVES, count=6), None):
        made = [placements(setup, started(one, setup, known)) for one in (HistoryHour(), History())]
        assert made[0] == made[1]
        start = view(setup.estimator(), flat(2, WIDE))
        told = [started(one, setup, known).decide(start) for one in (HistoryHour(), History())]
        assert told[0].reason == f"no week of past is known, so {told[1].reason}"


def test_a_move_that_cannot_be_made_is_made_as_soon_as_it_can_within_its_hours() -> None:
    setup = toy_setup(2)
    estimator, policy = setup.estimator(), started(HistoryHour(), setup, days(HALVES))
    wide, narrow, dead = flat(2, WIDE), flat(2, NARROW), flat(2, 0.0)
    one = policy.decide(view(estimator, narrow, now_s=23.5 * HOUR_S)).plan
    assert one is not None and len(one.shares) == 1
    free = [4 if domain == one.shares[0].domain else 3 for domain in range(2)]
    lost = policy.decide(view(estimator, wide, plan=one, now_s=24 * HOUR_S, free_gpus=free))
    cut = policy.decide(view(estimator, dead, plan=one, now_s=24.5 * HOUR_S))
    assert lost.plan is None and cut.plan is None
    moved = policy.decide(view(estimator, wide, plan=one, now_s=25 * HOUR_S))
    assert moved.plan is not None and len(moved.plan.shares) == 2
    assert moved.reason.startswith("most over this hour of the past days")
    held = policy.decide(view(estimator, wide, plan=moved.plan, now_s=25.5 * HOUR_S))
    assert held.reason.startswith("the day's schedule keeps the plan")


def test_what_replaced_a_plan_by_need_is_kept_until_the_schedule_moves() -> None:
    setup = toy_setup(2)
    estimator, policy = setup.estimator(), started(HistoryHour(), setup, days(HALVES))
    wide = flat(2, WIDE)
    first = policy.decide(view(estimator, wide)).plan
    assert first is not None and len(first.shares) == 2
    other = policy.decide(view(estimator, wide, plan=first, now_s=HOUR_S, free_gpus=(0, 4)))
    assert other.plan is not None and other.reason.startswith("most over the past")
    back = policy.decide(view(estimator, wide, plan=other.plan, now_s=2 * HOUR_S))
    assert back.plan is None or default_knobs(setup.job, back.plan) == default_knobs(setup.job, other.plan)
    by_day = policy.decide(view(estimator, flat(2, NARROW), plan=other.plan, now_s=12 * HOUR_S)).plan
    assert by_day is None or len(by_day.shares) == 1
    night = policy.decide(view(estimator, wide, plan=by_day or other.plan, now_s=24 * HOUR_S)).plan
    assert night is not None and default_knobs(setup.job, night) == default_knobs(setup.job, first)
