"""Benchmarks: paired in the same worlds, resumable, the statistics and fronts by hand-computed cases."""

import json
import os
import re
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands.show.bench_table import bench as show
from commands.show.console import Console
from ingest.core.errors import InfeasibleError, UsageError
from policy.core.protocol import Decision
from replay.bench import fronts
from replay.bench.bench import _notes, bench, with_seeds
from replay.bench.cells import RunOutcome
from replay.bench.load import scenario_at_load
from replay.bench.paired_statistics import interquartile, versus
from replay.bench.result import Bench
from replay.bench.worker_pool import WorkerPool, cores
from replay.bench.world import BenchWorld
from replay.log.run_log import RunReader
from replay.metrics import pareto
from replay.metrics.formatting import percent
from replay.metrics.kpis import of_events
from replay.metrics.paired_comparison import TimeBlocks
from replay.run import runner, scenario_overrides
from replay.store import run_index
from tests.support import toys
from tests.support.pool_tasks import echo, echo_from, refused
from tests.support.toys import toy_run, without_lake
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.view import View
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario
from twin.settings.disturbances import Noise
from twin.settings.scenario_file import ObjectiveWeights

POLICIES = ("static", "single", "mpc")
Found = tuple[Path, Bench]


def prepare(scenario: Any, store: Path, *, seed: Any = None, **chosen: Any) -> PreparedScenario:
    """The world of `toys`, with the perturbation that the scenario asks for."""
    setup = toys.prepare(scenario, store, seed=seed, **chosen)
    made = toy_setup(
        bps=toys.BPS, latency_s=0.01, steps=toys.STEPS, seed=setup.seed, perturbation=scenario.perturbation
    )
    return replace(setup, wan=made.wan)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    store = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "prepare", prepare)
        noises = scenario_overrides.parse_noises("0.3")
        return store, bench(store, POLICIES, [BenchWorld.of(toy_scenario())], seeds=2, noises=noises, jobs=1)


def test_every_policy_in_every_world(found: Found) -> None:
    store, result = found
    scenario = result.scenarios[0]
    assert [p.world.seed for p in scenario.worlds] == [0, 1] and list(scenario.noisy) == [0.3]
    assert len(run_index.all_ids(store)) == 2 * 2 * len(POLICIES)
    truths = {o.truth for played in scenario.worlds for o in played.outcomes}
    assert len(truths) == 1  # only the telemetry differs
    assert len({o.truth for played in scenario.noisy[0.3] for o in played.outcomes}) == 2  # so do the links


def test_nobody_beats_the_bound_of_its_world(found: Found) -> None:
    scenario = found[1].scenarios[0]
    for played in (*scenario.worlds, *scenario.noisy[0.3]):
        assert played.bound is not None
        assert all(o.kpis and o.kpis.progress_tokens <= played.bound.tokens for o in played.outcomes)
    assert scenario.worlds[0].bound is scenario.worlds[1].bound


def test_summaries_are_means_of_the_runs(found: Found) -> None:
    store, result = found
    summary = result.scenarios[0].policy_summary("mpc")
    kpis = [
        of_events(RunReader(run_index.folder(store, o.run_id or "")).events())
        for o in result.scenarios[0].of("mpc")
    ]
    times = [k.time_per_token_s for k in kpis if k.time_per_token_s]
    assert summary["time_per_token_s"] == pytest.approx(np.mean(times)) and summary["worlds"] == 2
    bound = result.scenarios[0].worlds[0].bound
    assert bound and summary["regret"] == pytest.approx(
        np.mean([1 - k.progress_tokens / bound.tokens for k in kpis])
    )
    assert [pair["base"] for pair in summary["versus"]] == ["static"]  # not itself
    pair = summary["versus"][0]
    assert pair["wins"] + pair["losses"] + pair["ties"] == 2


def test_limits_come_in_their_order(found: Found) -> None:
    scenario = found[1].scenarios[0]
    limits = scenario.limits()
    bound = scenario.worlds[0].bound
    assert bound and limits["bound"] == pytest.approx(scenario.worlds[0].wall_s / bound.tokens)
    values = [limits["capacity"], limits["bound"], limits["best kept plan"]]
    assert all(values) and values == sorted(values, key=lambda seconds: seconds or 0.0)
    best = min(scenario.policy_summary(policy)["time_per_token_s"] for policy in POLICIES)
    assert (limits["bound"] or 0.0) < best and found[1].to_json()["scenarios"][0]["limits"] == limits
    unbound = replace(scenario, worlds=tuple(replace(played, bound=None) for played in scenario.worlds))
    assert set(unbound.limits().values()) == {None}


def test_robustness_is_relative_to_the_same_seed_without_noise(found: Found) -> None:
    scenario = found[1].scenarios[0]
    rows = {row["policy"]: row for row in scenario.robustness()}
    assert list(rows) == [*POLICIES, "bound"]
    pairs = zip(scenario.of("mpc"), scenario.of("mpc", scenario.noisy[0.3]), strict=True)
    lost = [a.kpis.progress_tokens / b.kpis.progress_tokens - 1 for a, b in pairs if a.kpis and b.kpis]
    assert rows["mpc"]["median"] == pytest.approx(np.median(lost))
    assert rows["mpc"]["worst"] == pytest.approx(max(lost))
    assert rows["single"]["worst"] == 0.0  # sends nothing


def test_a_repeated_benchmark_runs_nothing_and_has_the_same_result(
    found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, result = found
    monkeypatch.setattr(scenarios, "prepare", prepare)
    before = run_index.all_ids(store)
    noises = scenario_overrides.parse_noises("0.3")
    repeated = bench(store, POLICIES, [BenchWorld.of(toy_scenario())], seeds=2, noises=noises, jobs=1)
    assert run_index.all_ids(store) == before and repeated.to_json() == result.to_json()
    more = bench(store, ("static",), [BenchWorld.of(toy_scenario())], seeds=3, with_bound=False, jobs=1)
    assert (
        len(run_index.all_ids(store)) == len(before) + 1
        and more.scenarios[0].policy_summary("static")["regret"] is None
    )


def test_a_policy_that_cannot_plan_the_schedule_gets_a_footnote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = toy_scenario().job.model_copy(update={"schedule": "interleaved", "chunks": 2})
    monkeypatch.setattr(scenarios, "prepare", lambda scenario, *_, **__: toy_setup(job=job.model_dump()))
    other = toy_scenario(job=job.model_dump())
    scenario = (
        result := bench(tmp_path, ("mpc", "zero", "hippo"), [BenchWorld.of(other)], jobs=1)
    ).scenarios[0]
    assert scenario.policy_summary("mpc")["worlds"] == 1
    show(Console(), result)
    printed = capsys.readouterr().out
    for policy in ("zero", "hippo"):
        assert scenario.policy_summary(policy)["worlds"] == 0
        assert f"{policy}: {policy} plans under schedule" in printed


JOBS = [{"name": "long"}, {"name": "late", "submit_s": 120, "tokens": 1_000_000}]


def test_load_is_the_pace_of_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(scenario: Any, store: Path, *, seed: Any = None, **_: Any) -> PreparedScenario:
        return toy_setup(bps=toys.BPS, latency_s=0.01, jobs=scenario.model_dump()["jobs"], seed=seed)

    monkeypatch.setattr(scenarios, "prepare", busy)
    world = BenchWorld.of(toy_scenario(jobs=JOBS))
    result = bench(tmp_path, ("static",), [world], seeds=2, loads=(1.2, 0.8, 1.0), jobs=1)
    scenario = result.scenarios[0]
    rows = scenario.under_load()
    assert [(row.load, row.worlds) for row in rows] == [(0.8, 2), (1.0, 2), (1.2, 2)]
    queued = [row.queued for row in rows]  # at 0.8 the second job comes 30 s later, and waits less
    assert 0 < queued[0] < queued[1] < queued[2]
    assert all(row.stability.mean == row.worst == 1.0 for row in rows)
    assert scenario.policy_summary("static")["regret"] is None and "several jobs" in result.notes[0]
    show(Console(), result)
    printed = capsys.readouterr().out
    assert "progress of jobs under load" in printed and "no bound is known" in printed
    assert json.loads(json.dumps(result.to_json()))["scenarios"][0]["load"][0]["policy"] == "static"


def test_each_seed_takes_the_next_jobs_of_a_trace() -> None:
    queue = scenario_overrides.scenario("queue")
    assert queue.arrivals is not None and queue.several_jobs and not toy_scenario().several_jobs
    one = [world.scenario.arrivals for world in with_seeds(BenchWorld.of(queue), 3)]
    assert [a.skip for a in one if a] == [0, 10, 20]
    assert scenario_at_load(queue, 1.25).arrivals == queue.arrivals.model_copy(
        update={"spread_s": queue.arrivals.spread_s / 1.25 if queue.arrivals.spread_s else None}
    )
    with pytest.raises(UsageError, match="toy-3 has no jobs whose pace"):
        scenario_at_load(toy_scenario(), 1.2)


@pytest.mark.parametrize(
    ("text", "wrong"), [("x", "give numbers"), ("0", "greater than 0"), ("1,1", "twice")]
)
def test_bad_loads(text: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=f"--load {text}.*{wrong}"):
        scenario_overrides.parse_loads(text)


def test_other_weights_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    first = toy_run(tmp_path, "static")
    assert toy_run(tmp_path, "static", reuse=True).run_id == first.run_id
    other = scenario_overrides.weighted(toy_scenario(), ObjectiveWeights(efficiency=1, utilisation=0, cost=0))
    assert runner.run(tmp_path, policy="static", scenario=other, reuse=True).run_id != first.run_id
    assert toy_run(tmp_path, "static", reuse=True, engine="des").run_id != first.run_id
    assert toy_run(tmp_path, "static").run_id == f"{first.run_id}-2"  # a replay always runs


def test_weights_are_noted_unless_speed_alone_counts() -> None:
    assert ObjectiveWeights().vector == (1, 0, 0) and ObjectiveWeights().note == ()  # what regret counts
    (note,) = toy_scenario().weights.note
    assert note.startswith("weights 0.6, 0.2, 0.2 of efficiency, utilisation and cost")
    assert note in " ".join(_notes([toy_scenario()], []))


def test_json_and_table(found: Found, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(json.dumps(found[1].to_json(), allow_nan=False))
    assert shown["schema"] == "twin.bench/1"
    worlds = shown["scenarios"][0]["worlds"]
    assert [(w["seed"], w["clip"]) for w in worlds] == [(0, None), (1, None), (0, 0.3), (1, 0.3)]
    assert worlds[0]["rows"][0]["run"] and worlds[0]["bound"]["tokens"] > 0
    show(Console(), found[1])
    printed = capsys.readouterr().out
    assert "paired differences" in printed and "worst at 30.0 %" in printed and "wins and losses" in printed


def test_fronts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    without_lake(monkeypatch)
    grid = (
        ObjectiveWeights(efficiency=1, utilisation=0, cost=0),
        ObjectiveWeights(efficiency=0.25, utilisation=0, cost=0.75),
    )
    worlds = [BenchWorld.of(toy_scenario())]
    result = bench(tmp_path, ("single", "mpc"), worlds, pareto=grid, with_bound=False, jobs=1)
    front = result.scenarios[0].front
    assert front is not None
    reaches = {reach.policy: reach for reach in front.reaches}
    assert reaches["single"].points == 1 and reaches["mpc"].points == 3  # its own weights, and the grid
    assert reaches["mpc"].coverage >= reaches["single"].coverage > 0
    assert all(0 <= reach.volume <= 1 + 1e-12 for reach in front.reaches) and len(front.points) == 4
    values = result.to_json()["scenarios"][0]["front"]
    assert values["reaches"][1] == asdict(reaches["mpc"]) and values["points"] == list(front.points)
    show(Console(), result)
    figures = f"3 +{percent(reaches['mpc'].coverage)} +{reaches['mpc'].volume:.3f}"
    assert re.search(rf"mpc +{figures}", capsys.readouterr().out)


def test_weights_never_ask_for_what_lies_inside_the_hull(found: Found) -> None:
    """Time and money of three points that nothing beats; the middle one is above the line through the others,
    so that a sum of weighted objectives is best at an end. Lower it below the line and it is asked for."""
    fast, cheap, base = [1.0, 4.0, -0.5], [4.0, 1.0, -0.5], [4.0, 4.0, -0.5]
    above, below = [3.0, 3.0, -0.5], [2.0, 2.0, -0.5]
    grid = fronts.grid()
    for middle, asked in ((above, [fast, cheap]), (below, [fast, below, cheap])):
        points = np.array([fast, middle, cheap])
        assert fronts.supported_points(points, base, grid).tolist() == asked
    ran = found[1].scenarios[0].worlds[0].outcomes[0]
    kpis = ran.kpis
    assert kpis is not None

    def outcome(point: list[float]) -> RunOutcome:
        figures = replace(kpis, time_per_token_s=point[0], usd_per_token=point[1], utilisation=-point[2])
        return replace(ran, kpis=figures)

    reached = {"static": base, "a": fast, "b": above, "c": cheap}
    played = [(policy, 0, outcome(point)) for policy, point in reached.items()]
    supported = fronts.front_of(played, grid).supported
    assert supported is not None and supported.points == 2 and supported.coverage == pytest.approx(2 / 3)
    assert fronts.front_of(played[1:], grid).supported is None


def test_grid_is_a_simplex_without_idling() -> None:
    grid = fronts.grid()
    assert grid[0].vector == (1.0, 0.0, 0.0) and len({weights.vector for weights in grid}) == len(grid) == 10
    assert all(weights.efficiency > 0 for weights in grid)
    finer = {weights.vector for weights in fronts.grid(8)}
    assert len(finer) == 36 and finer > {weights.vector for weights in grid} and (0.875, 0.0, 0.125) in finer


def outcome(tokens: int) -> RunOutcome:
    """A run of 100 s whose work is spread evenly."""
    kpis = replace(
        of_events([]),
        wall_s=100.0,
        tokens=tokens,
        progress_tokens=float(tokens),
        time_per_token_s=100 / tokens if tokens else None,
    )
    even, zero = np.full(4, tokens / 4), np.zeros(4)
    return RunOutcome("run", None, kpis, TimeBlocks(even, zero, zero, zero))


def test_versus_by_hand() -> None:
    mine, base = [outcome(200), outcome(100), outcome(90)], [outcome(100), outcome(100), outcome(100)]
    pair = versus("mpc", mine, base)
    assert pair and (pair.wins, pair.losses, pair.ties) == (1, 1, 1)
    reductions = [0.5, 0.0, 1 - 100 / 90]  # 1 - time per token / that of the base
    assert pair.mean and pair.mean.mean == pytest.approx(np.mean(reductions))
    half = 4.302653 * np.std(reductions, ddof=1) / np.sqrt(3)  # Student's t, two degrees of freedom
    assert (pair.mean.low, pair.mean.high) == pytest.approx((pair.mean.mean - half, pair.mean.mean + half))
    assert pair.middle and pair.middle.mean == pytest.approx(interquartile(np.array(reductions)))
    assert pair.over_time.mean == pytest.approx((390 - 300) / 300)
    assert pair.verdict == "equal"  # one win, one loss and a tie tell nothing
    twice = versus("mpc", [outcome(200), outcome(210), outcome(190)], base)
    assert twice and twice.verdict == "better"


def test_versus_where_somebody_has_nothing() -> None:
    none = RunOutcome(None, "does not fit")
    assert versus("mpc", [none], [outcome(1)]) is None
    pair = versus("mpc", [outcome(0), none], [outcome(100), outcome(100)])
    assert pair and (pair.worlds, pair.losses, pair.mean) == (1, 1, None) and pair.verdict == "worse"


def test_interquartile_mean_by_hand() -> None:
    assert interquartile(np.array([1.0, 2.0, 3.0, 100.0])) == pytest.approx(2.5)
    assert interquartile(np.array([0.0, 3.0, 9.0])) == pytest.approx(0 / 6 + 3 * 4 / 6 + 9 / 6)
    assert interquartile(np.array([7.0])) == pytest.approx(7.0)
    assert interquartile(np.array([[4.0, 1.0, 3.0, 2.0], [0, 0, 1, 1]])) == pytest.approx([2.5, 0.5])


def test_front_and_coverage_by_hand() -> None:
    points = np.array([[1.0, 4], [2, 2], [4, 1], [2, 3], [4, 4], [2, 2]])
    reference = pareto.front(points)
    assert reference.tolist() == [[1, 4], [2, 2], [4, 1]]
    assert pareto.coverage(np.array([[2.0, 2]]), reference) == pytest.approx(1 / 3)
    assert pareto.coverage(np.array([[2.03, 2.03], [1.0, 4.07]]), reference) == pytest.approx(2 / 3)
    assert pareto.coverage(np.array([[2.05, 2.0]]), reference) == 0
    negative = np.array([[1.0, -0.5]])  # utilisation 0.5: 0.49 is within 2 % of it, 0.48 is not
    assert pareto.coverage(np.array([[1.0, -0.49]]), negative) == 1
    assert pareto.coverage(np.array([[1.0, -0.48]]), negative) == 0


def test_hypervolume_by_hand() -> None:
    corner2, corner3 = np.full(2, 4.0), np.full(3, 2.0)
    assert pareto.hypervolume(np.array([[1.0, 1]]), corner2) == pytest.approx(9)
    assert pareto.hypervolume(np.array([[1.0, 3], [2, 2], [3, 1], [3, 3]]), corner2) == pytest.approx(6)
    assert pareto.hypervolume(np.array([[5.0, 0]]), corner2) == 0
    assert pareto.hypervolume(np.array([[0.0, 0, 0]]), corner3) == pytest.approx(8)
    # Three boxes of 1 x 2 x 2 that share the cube of side 1: 3 * 4 - 3 * 2 + 1
    corners = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert pareto.hypervolume(corners, corner3) == pytest.approx(3 * 4 - 3 * 2 + 1)


def test_hypervolume_equals_counting_cells() -> None:
    points = np.random.default_rng(3).integers(0, 6, size=(12, 3)).astype(float)
    cells = np.array(list(product(range(6), repeat=3)), dtype=np.float64)[:, None]
    counted = np.count_nonzero(np.any(np.all(cells >= points, axis=2), axis=1))
    assert pareto.hypervolume(points, np.full(3, 6.0)) == pytest.approx(counted)


def test_volume_ratio_by_hand() -> None:
    reference = np.array([[0.0, 10], [10, 0]])  # scaled to (0, 1), (1, 0), corner (1.1, 1.1)
    assert pareto.volume_ratio(reference, reference) == 1
    whole = 2 * 0.11 - 0.01  # two boxes of 1.1 x 0.1 that share 0.1 x 0.1
    assert pareto.volume_ratio(reference[:1], reference) == pytest.approx(0.11 / whole)
    flat = np.array([[1.0, 5.0]])  # no extent: shares of the value
    assert pareto.volume_ratio(np.array([[1.05, 5.0]]), flat) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("0.6,0.4", "2 numbers"),
        ("a,b,c", "three numbers"),
        ("0.6,0.6,0.2", "must be 1"),
        ("1.5,-0.5,0", "efficiency: must be 0 to 1"),
    ],
)
def test_bad_weights(text: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=f"--weights {text}.*{wrong}"):
        scenario_overrides.parse_weights(text)


@pytest.mark.parametrize(
    ("text", "wrong"), [("x", "give numbers"), ("0.1,0.1", "twice"), ("1.5", "between 0 and 1")]
)
def test_bad_levels(text: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=f"--perturb {text}.*{wrong}"):
        scenario_overrides.parse_noises(text)


def test_good_options() -> None:
    assert scenario_overrides.parse_loads("0.8,1.2") == (0.8, 1.2)
    assert scenario_overrides.scenario("tri-7b", "0.5,0.3,0.2").weights.vector == (0.5, 0.3, 0.2)
    assert scenario_overrides.parse_noises("0.1,0.3") == (Noise(clip=0.1, sd=0.05), Noise(clip=0.3, sd=0.15))


def test_bad_benchmarks(tmp_path: Path) -> None:
    toy = BenchWorld.of(toy_scenario())
    with pytest.raises(UsageError, match="did you mean 'static'"):
        bench(tmp_path, ("statc",), [toy])
    with pytest.raises(UsageError, match="policy 'static' is named twice"):
        bench(tmp_path, ("static", "static"), [toy])
    with pytest.raises(UsageError, match="scenario 'toy-3' is named twice"):
        bench(tmp_path, ("static",), [toy, toy])
    with pytest.raises(UsageError, match="--seeds 0"):
        bench(tmp_path, ("static",), [toy], seeds=0)


def test_noise_of_its_own_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scenarios, "prepare", prepare)
    stormy = BenchWorld.of(scenario_overrides.noisy(toy_scenario(), Noise()))
    noises = scenario_overrides.parse_noises("0.5")
    result = bench(tmp_path, ("static",), [stormy], noises=noises, with_bound=False, jobs=1)
    assert result.scenarios[0].noisy == {} and len(run_index.all_ids(tmp_path)) == 1
    show(Console(), result)
    printed = capsys.readouterr().out
    assert "has noise of its own, so none was added" in printed and "lost to added noise" not in printed


def test_processes_keep_the_order(tmp_path: Path) -> None:
    found = WorkerPool(tmp_path, 2).each(echo_from, [3, 1, 2], "items")
    assert [item for item, _ in found] == [3, 1, 2] and os.getpid() not in {pid for _, pid in found}
    assert {pid for _, pid in WorkerPool(tmp_path).each(echo_from, [3, 1], "items")} == {os.getpid()}
    assert cores() >= 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_mistake_in_one_of_many_ends_them_all(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(UsageError, match="is wrong"):
        WorkerPool(tmp_path, jobs).each(refused, list(range(20)), "items")


@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_is_begun_when_the_time_is_up(tmp_path: Path, jobs: int) -> None:
    items = list(range(20))
    pool = WorkerPool(tmp_path, jobs)
    assert pool.each(echo, items, "runs") == items
    late = pool.within(0.0, echo, items, "runs")
    assert len(late) == len(items) and None in late
    assert all(one in (None, item) for one, item in zip(late, items, strict=True))


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_front_and_hypervolume_equal_those_of_pymoo(objectives: int) -> None:
    hv = pytest.importorskip("pymoo.indicators.hv", reason="pymoo is in the extra `bench`")
    sorting = pytest.importorskip("pymoo.util.nds.non_dominated_sorting")
    for seed in range(30):
        points = np.random.default_rng(seed).uniform(0.0, 1.0, (25, objectives))
        corner = np.full(objectives, 1.1)
        own = pareto.front(points)
        theirs = points[sorting.NonDominatedSorting().do(points, only_non_dominated_front=True)]
        assert {tuple(row) for row in own} == {tuple(row) for row in theirs}
        assert pareto.hypervolume(points, corner) == pytest.approx(hv.HV(ref_point=corner)(points), rel=1e-12)


def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `threshold` find no plan."""

    def never(self: toys.Threshold, view: View) -> Decision:
        raise InfeasibleError("no plan of mine fits")

    toys.register(monkeypatch, "threshold", "Threshold")
    monkeypatch.setattr(toys.Threshold, "decide", never)


def test_a_policy_that_cannot_run_is_an_outcome_with_the_reason_and_no_bound_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scenarios, "prepare", prepare)
    refusing(monkeypatch)
    result = bench(tmp_path, ("threshold",), [BenchWorld.of(toy_scenario())], jobs=1)
    (scenario,) = result.scenarios
    (played,) = scenario.worlds
    (one,) = played.outcomes
    assert one.run_id is None and "no plan of mine fits" in str(one.problem) and played.bound is None
    assert fronts.objectives(one) is None and fronts.objectives(outcome(0)) is None
    show(Console(), result)
    assert "threshold: no plan of mine fits" in capsys.readouterr().out


def test_who_ran_nowhere_is_in_no_difference_and_no_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "prepare", prepare)
    refusing(monkeypatch)
    worlds, grid = [BenchWorld.of(toy_scenario())], fronts.grid(1)
    (scenario,) = bench(tmp_path, ("static", "threshold"), worlds, pareto=grid, jobs=1).scenarios
    assert scenario.policy_summary("threshold")["versus"] == []
    assert scenario.front is not None and [reach.policy for reach in scenario.front.reaches] == ["static"]
