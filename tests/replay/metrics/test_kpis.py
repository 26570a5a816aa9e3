"""Key figures against sums done by hand; conservation's own arithmetic; billing percentiles."""

import json
from dataclasses import replace
from typing import Any

import pytest

from replay.log.events import Event
from replay.metrics.kpis import of_events
from replay.metrics.paired_comparison import blocks_of
from replay.metrics.percentile_billing import BillingMeter
from tests.support.worlds import toy_scenario
from twin.core.model_presets import preset

S = 10**9
SCENARIO = {
    "cluster": {"domains": [{"name": "a", "gpus": 4}, {"name": "b", "gpus": 4}, {"name": "c", "gpus": 2}]}
}
NO_CHARGE = {"egress_usd": 0.0, "gpu_usd": 0.0, "energy_j": 0.0}
MOVE = {"moved_bytes": [[0, 2, 500]], "egress_usd": 0.5, "gpu_usd": 0.25}


def plan(*domains: int) -> dict[str, Any]:
    return {"shares": [{"domain": k} for k in domains]}


def applied(started_s: int, pause_s: int, domains: tuple[int, ...], **more: Any) -> dict[str, Any]:
    fields = {"plan": plan(*domains), "started_ns": started_s * S, "pause_ns": pause_s * S, "moved_bytes": []}
    return {**fields, **NO_CHARGE, **more}


def decided(latency_s: float, fallback: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"fallback": fallback}, {
        "latency_s": latency_s,
        "coordination_s": 2 * latency_s,
        "late": latency_s > 1,
    }


def history() -> list[Event]:
    """100 s: 40 s with two domains, a 10 s move to one domain, 45 s there, 5 s lost at the end."""
    rows: list[tuple[int, str, dict[str, Any], dict[str, Any]]] = [
        (0, "run_started", {"policy": "mpc", "scenario": SCENARIO}, {}),
        (0, "decided", *decided(0.5)),
        (0, "plan_applied", applied(0, 0, (0, 1)), {}),
        (40, "iteration_done", {
            "count": 4, "durations": [[3, 9 * S], [1, 13 * S]], "start_ns": 0, "tokens": 4000,
            "compute_ns": [20 * S, 28 * S, 0], "active_ns": [40 * S, 40 * S, 0], "gpu_compute_ns": 192 * S,
            "wan_bytes": [[0, 1, 3000], [1, 0, 1000]], "egress_usd": 2.0, "gpu_usd": 1.0, "energy_j": 100.0,
        }, {}),
        (40, "decided", *decided(1.5, "deadline of 1 s missed")),
        (50, "plan_applied", applied(40, 10, (2,), **MOVE), {}),
        (95, "iteration_done", {
            "count": 5, "durations": [[5, 9 * S]], "start_ns": 50 * S, "tokens": 5000,
            "compute_ns": [0, 0, 36 * S], "active_ns": [0, 0, 45 * S], "gpu_compute_ns": 72 * S,
            "wan_bytes": [], "egress_usd": 0.0, "gpu_usd": 1.0, "energy_j": 50.0,
        }, {}),
        (100, "time_lost", {
            "reason": "horizon", "start_ns": 95 * S, "lost_ns": 5 * S, "wan_bytes": [[0, 2, 40]],
            "moved_bytes": [], **NO_CHARGE,
        }, {}),
        (100, "run_finished", {"totals": {}}, {}),
    ]  # fmt: skip
    return [Event(n, at * S, kind, 1, "", payload, wall) for n, (at, kind, payload, wall) in enumerate(rows)]


def test_a_turn_of_knobs_is_no_move() -> None:
    """The same history with its second plan applied twice: the second time nothing stands still."""
    events = history()
    repeated = events[5].payload | {"started_ns": 50 * S, "pause_ns": 0, "moved_bytes": []}
    found = of_events([*events[:6], replace(events[5], payload=repeated), *events[6:]])
    assert (found.moves, found.turns, found.paused_s) == (1, 1, 10.0)


def test_figures_by_hand() -> None:
    found = of_events(history())
    assert (found.wall_s, found.tokens, found.iterations) == (100.0, 9000, 9)
    assert found.time_per_token_s == 100 / 9000
    assert found.mean_iteration_s == 85 / 9
    # computing 20 + 28 + 36 s; in the plan 40 + 40, then one domain for 10 (move) + 45 + 5 (lost)
    assert found.utilisation == pytest.approx(84 / 140)
    assert found.utilisation_owned == pytest.approx((192 + 72) / (10 * 100))
    assert (found.egress_usd, found.gpu_usd, found.energy_j) == (2.5, 2.25, 150.0)
    assert found.usd_per_token == 2.5 / 9000 and found.joule_per_token == 150 / 9000
    assert (found.wan_bytes, found.moved_bytes) == (4040, 500)
    assert (found.decisions, found.moves, found.turns, found.fallbacks, found.late) == (2, 1, 0, 1, 1)
    assert (found.paused_s, found.lost_s, found.queued_s) == (10.0, 5.0, 0.0)
    assert found.load_stability == pytest.approx(0.9)  # the horizon is not the scheduler's doing
    assert (found.decision_p50_s, found.decision_max_s, found.coordination_max_s) == (1.0, 1.5, 3.0)
    json.dumps(found.to_json(), allow_nan=False)


def priced_history(usd_per_gpu_hour: float = 5.0) -> list[Event]:
    """`history` in a scenario of llama2-7b on A100 at 5 USD an hour: four GPUs, then eight."""
    scenario = toy_scenario().model_dump(mode="json")
    scenario["cluster"]["domains"][2]["usd_per_gpu_hour"] = usd_per_gpu_hour
    events = history()
    events[0].payload["scenario"] = scenario
    for event in events:
        if event.type == "plan_applied":
            for share in event.payload["plan"]["shares"]:
                share["gpus"] = [0, 1, 2, 3]
    for n, held_s in ((3, 40), (5, 10), (6, 45), (7, 5)):
        count = 8 if n == 3 else 4
        events[n].payload.update(gpu_ns=count * held_s * S, gpu_usd=count * held_s * 5.0 / 3600)
    return events


def test_money_and_mfu_by_hand() -> None:
    """8 GPUs for 40 s and 4 for 60 s at 5 USD an hour; 2.5 USD of egress; 9,000 tokens in 100 s."""
    found = of_events(priced_history())
    rent = (8 * 40 + 4 * 60) * 5.0 / 3600
    assert found.tokens_per_s == 90.0 and found.gpu_usd == pytest.approx(rent)
    assert found.total_usd == pytest.approx(rent + 2.5)
    assert found.total_usd_per_token == pytest.approx((rent + 2.5) / 9000)
    assert found.rent_usd_per_token is not None and found.usd_per_token is not None
    assert found.rent_usd_per_token + found.usd_per_token == pytest.approx(found.total_usd_per_token)
    model = preset("llama2-7b")
    done = 9000 * model.flops_per_sequence / model.seq
    assert found.mfu == pytest.approx(done / ((8 * 40 + 4 * 60) * 312e12))
    assert found.unpriced == ()
    json.dumps(found.to_json(), allow_nan=False)


def test_a_site_without_a_price_is_named_and_an_unreadable_scenario_has_no_mfu() -> None:
    assert of_events(priced_history(0.0)).unpriced == ("d2 (A100-80)",)
    assert of_events(history()).mfu is None


def test_the_share_of_the_iteration_under_way_at_the_end_is_progress() -> None:
    events = history()
    lost = next(event for event in events if event.type == "time_lost")
    lost.payload["part_tokens"] = 500.0
    found = of_events(events)
    assert (found.tokens, found.progress_tokens) == (9000, 9500.0)
    assert found.time_per_token_s == 100 / 9500 and found.usd_per_token == 2.5 / 9500
    assert sum(blocks_of(events, 100 * S, 4).tokens) == pytest.approx(9500)


def test_work_that_a_failure_took_back_does_not_count() -> None:
    events = history()
    events.insert(-1, Event(9, 100 * S, "gpu_failed", 1, "", {"lost_tokens": 1000, "lost_iterations": 1}, {}))
    assert of_events(events).tokens == 8000


def test_an_empty_run_has_no_ratios() -> None:
    found = of_events([Event(0, 0, "run_started", 1, "", {"policy": "mpc", "scenario": SCENARIO}, {})])
    assert found.time_per_token_s is None and found.utilisation is None and found.decision_p50_s is None
    assert found.load_stability == 1.0


def test_an_abandoned_iteration_is_the_schedulers_doing() -> None:
    events = [e for e in history() if e.type != "time_lost"]
    lost = {"reason": "abandoned", "start_ns": 95 * S, "lost_ns": 5 * S, "wan_bytes": [], "moved_bytes": []}
    events.insert(-1, Event(8, 100 * S, "time_lost", 1, "", {**lost, **NO_CHARGE}, {}))
    assert of_events(events).load_stability == pytest.approx(0.85)


def test_of_several_jobs_the_stability_is_over_the_time_that_they_are_there() -> None:
    """a is there for 100 s; b from 20 s to 80 s: 10 s in the queue, displaced at 50 s, back after 15 s."""

    def lost(reason: str, start_s: int, lost_s: int) -> dict[str, Any]:
        fields = {"reason": reason, "start_ns": start_s * S, "lost_ns": lost_s * S}
        return {**fields, "wan_bytes": [], "moved_bytes": [], **NO_CHARGE}

    rows: list[tuple[int, str, str, dict[str, Any]]] = [
        (0, "run_started", "", {"policy": "mpc", "scenario": SCENARIO}),
        (0, "job_submitted", "a", {}),
        (0, "plan_applied", "a", applied(0, 0, (0,))),
        (20, "job_submitted", "b", {}),
        (30, "time_lost", "b", lost("waiting", 20, 10)),
        (30, "plan_applied", "b", applied(30, 0, (1,))),
        (50, "time_lost", "b", lost("preempted", 48, 2)),
        (50, "job_preempted", "b", {}),
        (60, "time_lost", "b", lost("waiting", 50, 10)),
        (65, "plan_applied", "b", applied(60, 5, (2,))),
        (80, "job_finished", "b", {}),
        (100, "run_finished", "", {"totals": {}}),
    ]
    found = of_events(
        Event(n, at * S, kind, 1, job, what, {}) for n, (at, kind, job, what) in enumerate(rows)
    )
    assert found.queued_s == 10.0
    assert found.load_stability == pytest.approx(1 - (2 + 10 + 5) / (100 + 60))


def test_billing_takes_the_95th_percentile_of_five_minute_averages() -> None:
    meter = BillingMeter()
    for interval in range(20):  # 1 Mb/s, but one interval in twenty has 100 Mb/s
        rate_bps = 100e6 if interval == 7 else 1e6
        start = interval * 300 * S
        meter.add(start, start + 300 * S, [[0, 1, int(rate_bps * 300 / 8)]])
    assert meter.p95_bps(20 * 300 * S) == pytest.approx(1e6)  # the highest 5 % are free
    meter.add(8 * 300 * S, 9 * 300 * S, [[0, 2, int(99e6 * 300 / 8)]])
    assert meter.p95_bps(20 * 300 * S) == pytest.approx(100e6)


def test_billing_splits_an_interval_at_the_border_and_sums_over_senders() -> None:
    meter = BillingMeter()
    meter.add(150 * S, 450 * S, [[0, 1, 7500], [1, 0, 15000]])
    assert meter.p95_bps(600 * S) == pytest.approx((3750 + 7500) * 8 / 300)
    meter.add(600 * S, 600 * S, [[0, 1, 100]])  # an instant
    assert BillingMeter().p95_bps(600 * S) == 0.0
