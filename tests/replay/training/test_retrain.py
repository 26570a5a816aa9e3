"""Retraining promotes only what is better, tells every step, and never runs twice at a time."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ingest.core.durable import Lock
from ingest.core.errors import DamageError, LockedError, NotFoundError, UsageError
from ingest.core.progress import Progress
from replay.audit import audit
from replay.log.run_log import RunReader
from replay.metrics import paired_comparison, store_status
from replay.metrics.cost_time_points import points
from replay.metrics.paired_comparison import PairedDifference
from replay.sql.query import query
from replay.store import checkpoint_lineage, checkpoint_listing, checkpoint_registry, run_index
from replay.store.run_header import STARTED
from replay.training import retrain, schedule
from replay.training.retrain import LoggedUpdate, Trained
from replay.training.rollback import Rollback, rollback
from tests.support.toys import CALLED, RUNNING, register, toy_checkpoint, toy_run, without_lake
from tests.support.worlds import toy_scenario
from twin.scenario.prepare import PreparedScenario


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    register(monkeypatch, "hippo", "FromCheckpoint", learned=True)
    monkeypatch.setattr(retrain, "INCUMBENT", "static")  # which loses to replicas in the toy world
    monkeypatch.setattr(checkpoint_registry, "that_ships", lambda store: None)
    return tmp_path / "store"


def comes_with(store: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> str:
    """Let a toy be the checkpoint that comes with the project; its digest."""
    digest = toy_checkpoint(store / "checkpoints", kind)
    path = checkpoint_registry.path_of(store, digest)
    monkeypatch.setattr(checkpoint_registry, "that_ships", lambda store: path)
    return digest


class Toy:
    """Trains nothing: its challenger behaves like the baseline `kind`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.started_from: Path | None = None

    def __call__(
        self,
        setup: PreparedScenario,
        validation: PreparedScenario | None,
        start: Path | None,
        out: Path,
        progress: Progress,
    ) -> Trained:
        assert setup.window == "train" and validation is None  # no walk fits into the toy's windows
        self.started_from = start
        return Trained(toy_checkpoint(out, self.kind), (LoggedUpdate("ppo", 0, 64, {"loss": 0.5}),))


def once(store: Path, kind: str) -> retrain.RetrainResult:
    return retrain.retrain(store, toy_scenario(), trainer=Toy(kind), seeds=(7,))


def test_the_better_challenger_is_promoted_and_every_step_is_an_event(store: Path) -> None:
    done = once(store, "diloco")
    assert done.promoted and done.champion is None, done.reason
    assert checkpoint_registry.active(store) == done.challenger
    events = list(RunReader(run_index.folder(store, done.run_id)).events())
    kinds = [event.payload.get("step", event.type) for event in events]
    assert kinds == [
        "run_started", "due", "collected", "policy_updated", "trained", "policy_evaluated",
        "policy_evaluated", "policy_promoted", "switched", "run_finished",
    ]  # fmt: skip
    assert [e.payload["role"] for e in events if e.type == "policy_evaluated"] == ["champion", "challenger"]
    assert events[-3].payload["interval"][0] > 0
    assert run_index.by_start(store, run_index.all_ids(store))[0] == done.run_id and STARTED in events[0].wall
    assert audit.audit(store, done.run_id).ok
    assert done.to_json()["schema"] == "twin.retrain/1"
    assert len(run_index.all_ids(store)) == 3  # the retraining and its two evaluations


def test_the_first_challenger_meets_what_ships(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = comes_with(store, monkeypatch, "diloco")
    train = Toy("static")
    done = retrain.retrain(store, toy_scenario(), trainer=train, seeds=(7,))
    assert done.champion == shipped and train.started_from == checkpoint_registry.path_of(store, shipped)
    assert (
        not done.promoted
        and checkpoint_registry.active(store) is None
        and checkpoint_registry.in_use(store) == shipped
    )
    better = once(store, "mpc")
    assert better.champion == shipped  # nothing was promoted, so it is still in use


def test_an_equal_challenger_is_rejected_and_the_champion_stays(store: Path) -> None:
    first = once(store, "diloco")
    train = Toy("diloco")
    second = retrain.retrain(store, toy_scenario(), trainer=train, seeds=(7,))
    assert not second.promoted and "not shown to be better" in second.reason
    assert checkpoint_registry.active(store) == first.challenger
    assert train.started_from == checkpoint_registry.path_of(store, first.challenger)
    kinds = [event.type for event in RunReader(run_index.folder(store, second.run_id)).events()]
    assert kinds[-2:] == ["policy_rejected", "run_finished"]


def test_a_worse_challenger_is_rejected(store: Path) -> None:
    once(store, "diloco")
    done = once(store, "static")
    assert not done.promoted and done.verdicts[0].worse
    assert checkpoint_registry.history(store) == (done.champion,)


def test_a_run_uses_the_active_checkpoint(store: Path) -> None:
    done = once(store, "diloco")
    played = toy_run(store, "hippo")
    assert RunReader(run_index.folder(store, played.run_id)).header()["checkpoint"] == done.challenger
    assert audit.audit(store, played.run_id).ok
    assert played.kpis.tokens == toy_run(store, "diloco").kpis.tokens


def test_rollback_and_promotion_check_what_they_point_at(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = comes_with(store, monkeypatch, "single")
    a, b = toy_checkpoint(store / "checkpoints", "mpc"), toy_checkpoint(store / "checkpoints", "static")
    checkpoint_registry.promote(store, a[:10])
    checkpoint_registry.promote(store, b)
    assert checkpoint_registry.history(store) == (a, b)
    checkpoint_registry.promote(store, b)  # it is active: nothing to do
    assert checkpoint_registry.history(store) == (a, b)
    assert checkpoint_registry.rollback(store) == a == checkpoint_registry.active(store)
    assert checkpoint_registry.rollback(store) == shipped == checkpoint_registry.in_use(store)
    assert checkpoint_registry.active(store) is None and checkpoint_registry.history(store) == ()
    with pytest.raises(NotFoundError, match="nothing to go back to"):
        checkpoint_registry.rollback(store)
    checkpoint_registry.promote(store, a)
    checkpoint_registry.path_of(store, b).write_text("gpc")
    with pytest.raises(DamageError, match="damaged"):
        checkpoint_registry.promote(store, b)
    assert checkpoint_registry.active(store) == a
    with pytest.raises(NotFoundError, match="no such checkpoint"):
        checkpoint_registry.promote(store, "0" * 64)
    (store / checkpoint_registry.POINTER).write_text("{}")
    with pytest.raises(DamageError, match=checkpoint_registry.POINTER):
        checkpoint_registry.active(store)


def test_without_a_shipped_checkpoint_the_first_promotion_has_no_way_back(store: Path) -> None:
    a = toy_checkpoint(store / "checkpoints", "mpc")
    assert checkpoint_registry.in_use(store) is None and checkpoint_registry.replaced(store) is None
    with pytest.raises(NotFoundError, match="none comes with it"):
        checkpoint_registry.resolve(store, "hippo", None)
    checkpoint_registry.promote(store, a)
    assert checkpoint_registry.in_use(store) == a and checkpoint_registry.replaced(store) is None
    with pytest.raises(NotFoundError, match="nothing was in use before"):
        checkpoint_registry.rollback(store)
    assert checkpoint_registry.active(store) == a


def test_a_rollback_is_logged_as_a_run_of_its_own(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ships = comes_with(store, monkeypatch, "static")
    first = once(store, "diloco").challenger
    second = toy_checkpoint(store / "checkpoints", "single")
    checkpoint_registry.promote(store, second)
    done = rollback(store)
    assert done.active == first == checkpoint_registry.active(store) and checkpoint_registry.history(
        store
    ) == (first,)
    assert done.run_id is not None and audit.audit(store, done.run_id).ok
    text = f"SELECT event, details->>'$.from', details->>'$.to' FROM training WHERE run = '{done.run_id}'"
    found = [tuple(row.values()) for row in query(store, text + " ORDER BY seq").to_pylist()]
    assert found == [("due", second, first), ("switched", second, first)]
    assert [record.checkpoint for record in checkpoint_lineage.records(store)] == [first]  # it made none
    last = rollback(store)
    assert checkpoint_registry.active(store) is None and last.active == ships
    assert last.run_id is not None and audit.audit(store, last.run_id).ok
    with pytest.raises(NotFoundError, match="nothing to go back to"):
        rollback(store)


def test_a_rollback_without_any_log_of_the_checkpoints_still_goes_back(store: Path) -> None:
    a, b = toy_checkpoint(store / "checkpoints", "mpc"), toy_checkpoint(store / "checkpoints", "static")
    checkpoint_registry.promote(store, a)
    checkpoint_registry.promote(store, b)
    assert rollback(store) == Rollback(a, None)
    assert checkpoint_registry.active(store) == a and not run_index.all_ids(store)


def test_no_rollback_while_a_retraining_is_under_way(store: Path) -> None:
    with Lock(store / "retrain.lock"), pytest.raises(LockedError):
        rollback(store)


def test_a_damaged_checkpoint_is_never_used(store: Path) -> None:
    digest = toy_checkpoint(store / "checkpoints", "mpc")
    checkpoint_registry.promote(store, digest)
    checkpoint_registry.path_of(store, digest).write_text("static")
    with pytest.raises(DamageError, match="damaged"):
        toy_run(store, "hippo")
    assert not run_index.all_ids(store)


def test_a_checkpoint_from_elsewhere_is_kept_for_the_audit(store: Path, tmp_path: Path) -> None:
    digest = toy_checkpoint(tmp_path / "elsewhere", "static")
    path = tmp_path / "elsewhere" / digest / f"hippo-{digest}.pt"
    played = toy_run(store, "hippo", checkpoint=str(path))
    path.unlink()
    assert audit.audit(store, played.run_id).ok


def test_two_retrainings_never_meet(store: Path) -> None:
    with Lock(store / "retrain.lock"), pytest.raises(LockedError):
        once(store, "diloco")
    assert not run_index.all_ids(store)


@pytest.mark.parametrize(
    ("main", "other", "promoted"),
    [
        ((0.01, 0.1), (-0.1, 0.1), True),
        ((-0.01, 0.1), (0.0, 0.1), False),
        ((0.01, 0.1), (-0.1, -0.01), False),
    ],
)
def test_promotion_decision(main: tuple[float, float], other: tuple[float, float], promoted: bool) -> None:
    verdicts = [
        PairedDifference("tokens", sum(main) / 2, *main),
        PairedDifference("utilisation", sum(other) / 2, *other),
    ]
    assert retrain.promotion_decision(verdicts)[0] is promoted


def test_blocks_hold_everything_that_the_events_say(store: Path) -> None:
    done = toy_run(store, "greedy")
    reader = RunReader(run_index.folder(store, done.run_id))
    found = paired_comparison.blocks_of(reader.events(), reader.header()["end_ns"])
    assert found.tokens.sum() == pytest.approx(done.kpis.progress_tokens)
    assert found.usd.sum() == pytest.approx(done.kpis.egress_usd)
    assert found.compute_s.sum() / found.active_s.sum() == pytest.approx(done.kpis.utilisation)


def waiting(condition: Any) -> None:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_missed_times_coalesce_and_survive_a_restart(tmp_path: Path) -> None:
    CALLED.clear()
    RUNNING.set()
    trigger = schedule.every("6h")
    made = schedule.scheduler(tmp_path, trigger, scenario="tri-7b", task="tests.support.toys:task")
    due = datetime.now(UTC) - timedelta(days=2)  # eight times were missed
    made.modify_job(schedule.JOB, next_run_time=due)  # and then the process is gone, without a shutdown
    repeated = schedule.scheduler(tmp_path, trigger, scenario="tri-7b", task="tests.support.toys:task")
    assert repeated.get_job(schedule.JOB).next_run_time == due
    repeated.resume()
    waiting(lambda: CALLED)
    waiting(lambda: repeated.get_job(schedule.JOB).next_run_time > datetime.now(UTC))
    repeated.shutdown()
    made.shutdown()
    (arguments,) = CALLED
    assert arguments == (str(tmp_path), "tri-7b", None)


def test_a_slow_retraining_is_not_joined_by_the_next(tmp_path: Path) -> None:
    CALLED.clear()
    RUNNING.clear()
    made = schedule.scheduler(
        tmp_path, schedule.every("1s"), scenario="tri-7b", task="tests.support.toys:task"
    )
    made.modify_job(schedule.JOB, next_run_time=datetime.now(UTC))
    made.resume()
    waiting(lambda: CALLED)
    time.sleep(1.2)
    assert len(CALLED) == 1
    RUNNING.set()
    made.shutdown()


def test_another_trigger_replaces_the_schedule(tmp_path: Path) -> None:
    schedule.scheduler(tmp_path, schedule.every("6h"), scenario="tri-7b").shutdown()
    made = schedule.scheduler(tmp_path, schedule.every("1h"), scenario="tri-7b")
    assert made.get_job(schedule.JOB).trigger.interval == timedelta(hours=1)
    assert len(made.get_jobs()) == 1
    made.shutdown()


def test_intervals_and_crontabs() -> None:
    assert schedule.every("90s").interval == timedelta(seconds=90)
    assert schedule.every("1d").interval == timedelta(days=1)
    assert str(schedule.cron("0 3 * * *")).startswith("cron[")
    for text in ("6", "h", "0h", "-1h", "6 hours"):
        with pytest.raises(UsageError, match="no interval"):
            schedule.every(text)
    with pytest.raises(UsageError, match="no crontab line"):
        schedule.cron("daily")


def test_status_tells_runs_checkpoint_and_filter_health(store: Path) -> None:
    done = once(store, "diloco")
    toy_run(store, "static")
    found = store_status.status(store).to_json()
    assert found["schema"] == "twin.status/2" and found["active"] == done.challenger
    assert {line["policy"] for line in found["runs"]} == {"retrain", "static", "hippo"}
    assert all(line["finished"] and line["problem"] is None for line in found["runs"])
    json.dumps(found, allow_nan=False)
    assert len(found["health"]["links"]) == 6
    worst = max(found["health"]["links"], key=lambda link: link["nis"])
    assert (worst["src"], worst["dst"]) == ("d0", "d1") and worst["nis"] > 1  # the link that steps
    listed = checkpoint_listing.policies(store)
    assert {entry["name"] for entry in listed["policies"]} >= {"static", "mpc", "hippo"}
    assert [c["active"] for c in listed["checkpoints"] if c["digest"] == done.challenger[:64]] in ([True], [])
    assert store_status.status(store / "empty").to_json()["runs"] == []


@pytest.mark.parametrize(
    "text", ["[]", '{"schema":"twin.active/1","checkpoint":"a","history":["b"]}', '{"schema":"x"}', "{"]
)
def test_a_pointer_that_is_none_is_damage(store: Path, text: str) -> None:
    store.mkdir()
    (store / checkpoint_registry.POINTER).write_text(text)
    with pytest.raises(DamageError, match="delete it and promote a checkpoint again"):
        checkpoint_registry.active(store)


def test_a_damaged_run_is_listed_with_what_is_wrong_and_is_no_point_of_the_front(store: Path) -> None:
    damaged, sound = toy_run(store, "static").run_id, toy_run(store, "single").run_id
    path = min(run_index.folder(store, damaged).glob("*.json"))
    path.write_text("{}")
    lines = {line.run_id: line for line in store_status.status(store).runs}
    assert lines[damaged].problem is not None and path.name in lines[damaged].problem
    assert lines[sound].problem is None and lines[sound].finished
    assert {point.run_id for point in points(store, sound)} == {sound}


def test_the_health_of_a_newest_run_with_damaged_events_is_unknown(store: Path) -> None:
    done = toy_run(store, "static").run_id
    path = max(run_index.folder(store, done).glob("*.parquet"))
    path.write_bytes(bytes(path.stat().st_size))
    found = store_status.status(store)
    assert found.health is None and found.health_problem is not None and path.name in found.health_problem
    assert [line.run_id for line in found.runs] == [done]
