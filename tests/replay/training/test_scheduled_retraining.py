"""Retraining as a service: killed anywhere, its files damaged, and in a week in which the WAN changes."""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingest.core import durable
from ingest.core.durable import Disk
from ingest.core.errors import DamageError
from ingest.core.progress import Progress
from ingest.core.units import NS_PER_S
from policy.core import registry
from policy.core.protocol import Context, Decision
from policy.core.reference_plan import equal_cuts
from replay.log import run_log
from replay.log.run_log import RunReader, RunWriter
from replay.metrics import paired_comparison
from replay.run import runner
from replay.store import checkpoint_lineage, checkpoint_registry, run_index
from replay.training import drift, retrain, schedule
from replay.training.retrain import LoggedUpdate, Trained
from replay.training.rollback import rollback
from tests.support.tally import tally
from tests.support.toys import register, toy_checkpoint, without_lake
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.view import View
from twin.estimation.estimator import Estimator
from twin.filters.link_filter import LinkParameters
from twin.filters.ou_process import OuParameters
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, assemble
from twin.traces.wan_trace import LinkSeries, WanTrace, trace

KILLS = 40
FLIPS = 200


class Crash(BaseException):
    """The process is gone: nothing that it does after this has any effect."""


class Killer:
    """Lets calls to the disk through until the `at`-th, and none from there on."""

    CALLS = ("create", "write", "fsync", "link", "rename", "unlink", "fsync_directory")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.calls = 0, 0
        for name in self.CALLS:
            monkeypatch.setattr(Disk, name, self._watched(getattr(Disk, name)))

    def _watched(self, call: Any) -> Any:
        def watched(disk: Disk, *arguments: Any) -> Any:
            self.calls += 1
            if self.at and self.calls >= self.at:
                raise Crash
            return None if "fsync" in call.__name__ else call(disk, *arguments)  # a process dies, no power

        return watched

    def arm(self, at: int) -> None:
        self.at, self.calls = at, 0


def toy_trainer(
    setup: PreparedScenario,
    validation: PreparedScenario | None,
    start: Path | None,
    out: Path,
    progress: Progress,
) -> Trained:
    return Trained(toy_checkpoint(out, "single"), (LoggedUpdate("ppo", 0, 64, {"loss": 0.5}),))


def retrained(store: Path) -> retrain.RetrainResult:
    return retrain.retrain(store, toy_scenario(), trainer=toy_trainer, seeds=(7,))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds of two minutes, in which `single` beats `static` because every link is slow. Logs are flushed by
    the number of their events alone: every retraining makes the same calls, however slow the disk is."""
    without_lake(monkeypatch)
    monkeypatch.setattr(checkpoint_registry, "that_ships", lambda store: None)
    monkeypatch.setattr(run_log, "time", SimpleNamespace(monotonic=float))
    monkeypatch.setattr(paired_comparison, "RESAMPLES", 200)
    register(monkeypatch, "hippo", "FromCheckpoint", learned=True)

    def prepare(
        scenario: Any, store: Path, *, window: str = "test", dataset: Any = None, seed: Any = None, **_: Any
    ) -> PreparedScenario:
        setup = toy_setup(bps=1e8, seconds=120.0, seed=scenario.seed if seed is None else seed)
        return replace(setup, scenario=scenario, window=window)

    monkeypatch.setattr(scenarios, "prepare", prepare)


def test_a_retraining_killed_at_any_call_leaves_a_whole_champion_and_a_true_log(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Save, evaluate, promote: the process dies at 40 calls spread over all, each of the last among them."""
    killer = Killer(monkeypatch)
    (tmp_path / "whole").mkdir()
    assert retrained(tmp_path / "whole").promoted
    calls = killer.calls
    moments = sorted({*np.linspace(1, calls, KILLS - 8).astype(int).tolist(), *range(calls - 16, calls + 1)})
    assert len(moments) >= KILLS
    promoted, killed = set(), 0
    for at in moments:
        store = tmp_path / f"killed-{at}"
        store.mkdir()
        killer.arm(at)
        with suppress(Crash):
            retrained(store)
        killed += killer.calls >= at
        killer.arm(0)
        check_champion(store)
        retrain.settle(store)
        promoted.add(check_champion(store) is not None)
        for run_id in run_index.all_ids(store):
            reader = RunReader(run_index.folder(store, run_id))
            if reader.contents().end:
                assert reader.verify() == []
                check_word(store, reader)
        assert retrain.settle(store) == ()
    assert promoted == {True, False} and killed == len(moments)
    tally("kills", killed)


def check_champion(store: Path) -> str | None:
    """The active checkpoint, if any, is there and is what its name says."""
    active = checkpoint_registry.active(store)
    if active is not None:
        assert checkpoint_registry.verified(checkpoint_registry.path_of(store, active)) == active
    return active


def check_word(store: Path, reader: RunReader) -> None:
    """A retraining's log is at its end, and says promoted if and only if the pointer moved."""
    events = list(reader.events())
    if events[0].payload["policy"] == "retrain":
        assert reader.finished
        said = any(event.type == "policy_promoted" for event in events)
        assert (
            said
            == events[-1].payload["totals"]["promoted"]
            == (checkpoint_registry.active(store) is not None)
        )


def test_a_promotion_whose_checkpoint_was_damaged_meanwhile_leaves_the_champion(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_registry, "promote", lambda *_, **__: (_ for _ in ()).throw(Crash))
    with pytest.raises(Crash):
        retrained(tmp_path)
    monkeypatch.undo()
    (made,) = checkpoint_registry.stored(tmp_path)[:1]
    made.write_text("static")
    (run_id,) = retrain.settle(tmp_path)
    *_, interrupted, finished = RunReader(run_index.folder(tmp_path, run_id)).events()
    assert "damaged" in interrupted.payload["details"]["problem"]
    assert finished.payload["totals"]["promoted"] is False and checkpoint_registry.active(tmp_path) is None


def test_a_rollback_killed_at_any_call_is_completed_and_logged(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(monkeypatch)
    first = retrained(tmp_path / "base").challenger
    second = toy_checkpoint(tmp_path / "base" / "checkpoints", "static")
    checkpoint_registry.promote(tmp_path / "base", second)
    killer.arm(0)
    shutil.copytree(tmp_path / "base", tmp_path / "whole")
    rollback(tmp_path / "whole")
    outcomes = set()
    for at in range(1, killer.calls + 1):
        store = tmp_path / f"killed-{at}"
        shutil.copytree(tmp_path / "base", store)
        killer.arm(at)
        with pytest.raises(Crash):
            rollback(store)
        killer.arm(0)
        retrain.settle(store)
        said = [
            event.payload.get("step")
            for run_id in run_index.all_ids(store)
            for event in RunReader(run_index.folder(store, run_id)).events()
            if event.payload.get("details", {}).get("from") == second
        ]
        assert said.count("switched") == (checkpoint_registry.active(store) == first)
        assert checkpoint_registry.active(store) in (first, second) and retrain.settle(store) == ()
        outcomes.add(checkpoint_registry.active(store))
    assert outcomes == {first, second}
    tally("kills of a rollback", at)


def test_the_run_of_an_evaluation_that_was_cut_short_is_no_news_of_the_world(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation's own run is on the disk, but no event of the retraining names it yet."""
    seen = runner.run(tmp_path, policy="static", scenario=toy_scenario()).run_id
    append = RunWriter.append

    def dying(log: RunWriter, sim_ns: int, kind: str, payload: Any, **more: Any) -> int:
        if kind == "policy_evaluated":
            raise Crash
        return append(log, sim_ns, kind, payload, **more)

    monkeypatch.setattr(RunWriter, "append", dying)
    with pytest.raises(Crash):
        retrained(tmp_path)
    monkeypatch.setattr(RunWriter, "append", append)
    retrain.settle(tmp_path)
    mine = [run for run in run_index.all_ids(tmp_path) if "retrain" not in run and run != seen]
    assert len(mine) == 1 and RunReader(run_index.folder(tmp_path, mine[0])).header()["part_of"]
    assert drift.newest(tmp_path, toy_scenario().name) == seen


def test_a_retraining_after_a_killed_one_goes_through(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(monkeypatch)
    killer.arm(60)
    with pytest.raises(Crash):
        retrained(tmp_path)
    killer.arm(0)
    done = retrained(tmp_path)
    assert done.promoted
    (mine,) = [one for one in checkpoint_lineage.records(tmp_path) if one.verdict == "promoted"]
    assert mine.checkpoint == done.challenger == checkpoint_registry.active(tmp_path) and mine.parent is None
    assert mine.scores["challenger"]["tokens"] > mine.scores["champion"]["tokens"]


def test_no_flipped_checkpoint_is_ever_used(tmp_path: Path, small: None) -> None:
    old, new = (toy_checkpoint(tmp_path / "checkpoints", kind) for kind in ("single", "static"))
    checkpoint_registry.promote(tmp_path, old)
    path = checkpoint_registry.path_of(tmp_path, new)
    whole, rng = path.read_bytes(), random.Random(0)
    for _ in range(FLIPS):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        with pytest.raises(DamageError, match="damaged"):
            checkpoint_registry.promote(tmp_path, new)
        assert checkpoint_registry.active(tmp_path) == old
        tally("flips", 1)
    path.write_bytes(whole)
    checkpoint_registry.promote(tmp_path, new)
    assert checkpoint_registry.rollback(tmp_path) == old


# -- a week


DAY_S = 86_400
STEP_S = 300
CHANGE_S = int(3.25 * DAY_S)
"""On the morning of the fourth day the fast pair of links becomes slow, and a slow one fast."""
FAST_BPS, SLOW_BPS = 2e10, 3e8
TAU_S, SPREAD, NOISE = 7200.0, 0.1, 0.03


def week(days: int = 8) -> WanTrace:
    """Three domains: 0-1 is fast until `CHANGE_S`, then 0-2; every link wanders around its level."""
    times = np.arange(0, days * DAY_S, STEP_S)
    series = {}
    for i, j in [(i, j) for i in range(3) for j in range(3) if i != j]:
        rng = np.random.default_rng([i, j])
        keep = np.exp(-STEP_S / TAU_S)
        log = np.zeros(len(times))
        for n, shock in enumerate(rng.normal(0, SPREAD * np.sqrt(1 - keep**2), len(times))):
            log[n] = keep * log[n - 1] + shock
        before, after = (FAST_BPS if {i, j} == pair else SLOW_BPS for pair in ({0, 1}, {0, 2}))
        level = np.where(times < CHANGE_S, before, after)
        series[i, j] = LinkSeries(times * NS_PER_S, level * np.exp(log), np.full(len(times), 0.01))
    return trace(("d0", "d1", "d2"), series, days * DAY_S * NS_PER_S)


WINDOWS = {"all": (24, 0), "train": (10_000, 6), "validate": (7, 6), "test": (6, 0)}
"""Hours before now: from, to."""


class Week:
    """Stands for the lake: at `now_s`, what has been measured so far."""

    def __init__(self) -> None:
        self.wan, self.now_s = week(), DAY_S

    def prepare(
        self,
        scenario: Any,
        store: Path,
        *,
        window: str = "test",
        dataset: Any = None,
        seed: Any = None,
        **_: Any,
    ) -> PreparedScenario:
        start, end = (max(0, self.now_s - 3600 * hours) * NS_PER_S for hours in WINDOWS[window])
        wan = self.wan.window(start, end)
        levels = [np.log(series.bandwidth_bps[0]) for series in wan.series.values()]
        filters = LinkParameters(
            OuParameters.of(np.array(levels), tau_s=TAU_S, sd=SPREAD, r=NOISE**2),
            OuParameters.of(np.full(6, np.log(0.01)), tau_s=TAU_S, sd=0.05, r=NOISE**2),
        )
        made = assemble(
            scenario, wan, window="all", seed=scenario.seed if seed is None else seed, filters=filters
        )
        return replace(made, window=window)


class Learned:
    """Goes where it has learned that it pays to be, and expects there what it has seen there."""

    name = "hippo"

    def __init__(self, checkpoint: Path) -> None:
        self.known = json.loads(checkpoint.read_text())

    def reset(self, context: Context) -> None:
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        plan = equal_cuts(self.estimator, self.known["domains"], view.free_gpus)
        return Decision(None if plan == view.plan else plan, "learned", predicted_iter_s=self.known["iter_s"])


def learn(
    setup: PreparedScenario,
    validation: PreparedScenario | None,
    start: Path | None,
    out: Path,
    progress: Progress,
) -> Trained:
    """The domains with the fastest iteration over the last twelve hours of the window."""
    estimator = Estimator(setup.cluster, setup.job)
    hours = [setup.wan.end_ns - hour * 3600 * NS_PER_S for hour in range(1, 13)]
    choices = [list(chosen) for size in (1, 2, 3) for chosen in combinations(range(3), size)]

    def mean_s(domains: list[int]) -> float:
        plan = equal_cuts(estimator, domains, (4, 4, 4))
        return float(np.mean([estimator.iter_ns(plan, setup.wan.at(at)) for at in hours])) / NS_PER_S

    best = min(choices, key=mean_s)
    data = json.dumps({"domains": best, "iter_s": mean_s(best)}).encode()
    digest = sha256(data).hexdigest()
    durable.put(out / digest / f"hippo-{digest}.pt", data, idempotent=True)
    return Trained(digest, ())


SCENARIO = toy_scenario(
    control={"period_s": 7200, "horizons_s": [0, 3600]},
    telemetry={"period_s": STEP_S, "delay_s": 1, "noise": NOISE},
)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Week]:
    world = Week()
    monkeypatch.setattr(scenarios, "prepare", world.prepare)
    monkeypatch.setattr(retrain, "INCUMBENT", "static")
    monkeypatch.setattr(checkpoint_registry, "that_ships", lambda store: None)
    entry = registry.PolicyEntry(
        "tests.replay.training.test_scheduled_retraining:Learned", "for tests", learned=True
    )
    monkeypatch.setitem(registry.POLICIES, "hippo", entry)
    yield world


def test_a_week_in_which_the_wan_changes_on_the_fourth_day(tmp_path: Path, lake: Week) -> None:
    """Every night the service looks for drift; what the old policy loses from then on, the new one earns."""
    first = retrain.retrain(tmp_path, SCENARIO, trainer=learn, seeds=(7,))
    assert first.promoted, first.reason
    tokens, fired = {}, []
    for day in range(2, 8):
        lake.now_s = day * DAY_S
        tokens[day] = operate(tmp_path)
        done = schedule.on_drift(tmp_path, SCENARIO, trainer=learn, seeds=(7,))
        if done is not None:
            fired.append(day)
            assert done.promoted and done.champion == first.challenger, done.reason
            steps = [
                e
                for e in RunReader(run_index.folder(tmp_path, done.run_id)).events()
                if e.type == "retraining_step"
            ]
            assert steps[0].payload["details"]["cause"] == "drift"
            assert steps[0].payload["details"]["shortfall"] >= drift.SHORTFALL[1]
        assert drift.drifting(tmp_path, SCENARIO.name) == (day == 4)
    assert fired == [4]
    (record,) = [
        r
        for r in checkpoint_lineage.records(tmp_path)
        if r.checkpoint == checkpoint_registry.active(tmp_path)
    ]
    assert record.parent == first.challenger and record.cause == "drift" and record.verdict == "promoted"
    before = np.mean([tokens[2], tokens[3]])
    after = np.mean([tokens[day] for day in (5, 6, 7)])
    old = operate(tmp_path, checkpoint=first.challenger)  # the same last day under the policy of before
    assert old < 0.6 * before
    assert (after - old) / (before - old) > 0.95


def operate(store: Path, checkpoint: str | None = None) -> int:
    """Tokens of the day that has just passed."""
    done = runner.run(store, policy="hippo", scenario=SCENARIO, window="all", checkpoint=checkpoint)
    return done.kpis.tokens
