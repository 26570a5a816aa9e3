"""Plots of a benchmark: what there is data for, labelled, the same bytes again, and no others."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import cli
from policy.core import registry
from replay.bench import plots as bench_plots
from replay.bench.bench import of_comparison
from replay.bench.chart_style import COLUMNS, OWN, Bar, Panel, figure, styles
from replay.bench.comparison import compare
from replay.bench.plots import PLOTS, Written, bound_of, decision_times, drawn, write
from replay.bench.result import ScenarioResult
from replay.bench.world import BenchWorld
from replay.metrics.paired_comparison import PairedDifference
from tests.support.toys import BENCHED, toy_bench, without_lake
from tests.support.worlds import toy_scenario

Found = tuple[Path, ScenarioResult]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Two seeds and a front of the toy world; as if noise and load had changed nothing."""
    store = tmp_path_factory.mktemp("bench")
    (result,) = toy_bench(store).scenarios
    return store, replace(result, noisy={0.3: result.worlds}, loads={1.2: result.worlds})


def texts(path: Path) -> list[str]:
    """What stands in a picture; matplotlib writes letters as shapes, with the text as a comment."""
    ElementTree.parse(path)
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))


def plots(written: list[Written]) -> list[str]:
    return [one.plot for one in written]


def test_every_plot_there_is_data_for_with_its_axes_named(found: Found, tmp_path: Path) -> None:
    store, result = found
    written = write(store, [Panel.of(result)], tmp_path / "new" / "folder", prefix="p-")
    assert plots(written) == list(PLOTS)
    said = {one.plot: texts(one.path) for one in written}
    axes = {
        "time": ["us per token"],
        "regret": ["regret, % of the bound's tokens"],
        "versus": ["tokens more than the other's, %", "mpc against static", "better", "worse"],
        "noise": ["noise on all links clipped at, ±%", "time per token lost, %"],
        "load": ["load, % of the scenario's", "load stability, %"],
        "front": ["us per token", "egress, USD per 1e9 tokens"],
        "latency": ["ms a decision", "share of decisions, %"],
    }
    for plot, labels in axes.items():
        assert {*labels} <= {*said[plot]} and PLOTS[plot].shows in " ".join(said[plot]), plot
        assert f"toy-3 on {result.dataset}, 2 seeds" in said[plot]
    assert {"static", "single", "mpc", "bound"} <= {*said["noise"]} & {*said["time"]}
    assert result.front is not None
    for reach in result.front.reaches:
        assert f"{reach.policy}: {reach.coverage:.0%}, {reach.volume:.2f}" in said["front"]
    for one in written:
        assert one.path == tmp_path / "new" / "folder" / f"p-{one.plot}.svg"
        assert one.size_bytes == one.path.stat().st_size


def test_the_same_benchmark_gives_the_same_bytes(found: Found) -> None:
    store, result = found
    for plot in PLOTS:
        assert drawn(store, plot, [Panel.of(result)]) == drawn(store, plot, [Panel.of(result)])


def test_what_was_not_asked_for_is_not_drawn(found: Found, tmp_path: Path) -> None:
    store, result = found
    blind = tuple(replace(played, bound=None) for played in result.worlds)
    plain = replace(result, worlds=blind, noisy={}, loads={}, front=None)
    assert plots(write(store, [Panel.of(plain)], tmp_path)) == ["time", "versus", "latency"]
    both = [Panel.of(plain), Panel("other", result)]
    (regret,) = write(store, both, tmp_path, ["regret"])
    assert "other" in texts(regret.path) and not any("toy-3" in text for text in texts(regret.path))


def test_made_up_links_are_labelled(found: Found, tmp_path: Path) -> None:
    store, result = found
    notes = {"": 0, "rate of synthetic-tri": 1}
    for note, label in notes.items():
        outcomes = tuple(replace(o, note=note, dataset="links") for o in result.worlds[0].outcomes)
        played = (replace(result.worlds[0], outcomes=outcomes),)
        for one in write(store, [Panel.of(replace(result, worlds=played, noisy={}))], tmp_path):
            assert texts(one.path).count("SYNTHETIC links") == label


def test_figures_are_those_of_the_tables(found: Found, tmp_path: Path) -> None:
    store, result = found
    time, regret = write(store, [Panel.of(result)], tmp_path, ["time", "regret"])
    for policy in BENCHED:
        row = result.policy_summary(policy)
        assert f"  {1e6 * row['time_per_token_s']:.1f}" in texts(time.path)
        assert f"  {100 * row['regret']:.1f}" in texts(regret.path)
    played = result.worlds[0]
    kpis = played.outcomes[0].kpis
    assert played.bound is not None and kpis is not None
    assert bound_of(played) == kpis.wall_s / played.bound.tokens
    assert bound_of(replace(played, bound=None)) is None
    run = result.of("mpc")[0].run_id
    assert run is not None and len(decision_times(store, run)) == kpis.decisions


def test_whoever_trained_nothing_has_no_bar(found: Found, tmp_path: Path) -> None:
    store, result = found
    outcomes = [o.kpis and replace(o, kpis=replace(o.kpis, time_per_token_s=None)) for o in result.of("mpc")]
    worlds = tuple(
        replace(played, outcomes=(*played.outcomes[:2], outcome or played.outcomes[2]))
        for played, outcome in zip(result.worlds, outcomes, strict=True)
    )
    (time,) = write(store, [Panel.of(replace(result, worlds=worlds))], tmp_path, ["time"])
    assert "static" in texts(time.path) and "mpc" not in texts(time.path)


def test_far_slower_runs_are_said_to_be_left_out(found: Found, tmp_path: Path) -> None:
    store, result = found
    assert result.front is not None
    first = result.front.points[0]
    points = (*result.front.points, {**first, "time_per_token_s": 9 * first["time_per_token_s"]})
    panel = Panel.of(replace(result, front=replace(result.front, points=points)))
    (front,) = write(store, [panel], tmp_path, ["front"])
    near = np.array([point["time_per_token_s"] for point in result.front.points])
    left = 1 + int((near > bench_plots.FARTHEST * near.min()).sum())
    assert f"us per token ({left} slower runs are left out)" in texts(front.path)


def test_each_of_a_few_policies_has_its_own_style() -> None:
    few = (*OWN, *[name for name in registry.names() if name not in OWN][:4])
    shown = styles(few)
    assert list(shown) == list(few) and len({*shown.values()}) == len(few)
    assert set(styles(registry.names())) == set(OWN)


def test_panels_stand_in_rows_and_names_of_data_are_no_formulas(found: Found) -> None:
    titles = [f"data $x_{k} on disk$" for k in range(COLUMNS + 1)]
    made = figure([Panel(title, found[1]) for title in titles], "of", lambda axis, _: axis.plot([1], [1]))
    assert all(f"<!-- {title} -->" in made.decode() for title in titles)
    assert Bar("a", PairedDifference("a", 1, 1, 1), "red").value.mean == 1


def test_one_world_is_drawn_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    world = BenchWorld.of(toy_scenario())
    one = compare(tmp_path, ("static", "mpc", "zero"), world)
    result = of_comparison(tmp_path, world, one)
    regrets = [result.policy_summary(row.policy)["regret"] for row in one.rows]
    assert regrets == [row.regret for row in one.rows]
    assert plots(write(tmp_path, [Panel.of(result)], tmp_path / "plots")) == [
        "time",
        "regret",
        "versus",
        "latency",
    ]


def test_the_command_says_which_files_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    folder = tmp_path / "plots"
    asked = ["--store", str(tmp_path), "bench", "-p", "static", "-p", "mpc", "--plots", str(folder)]
    for more, count in (["--json"], 4), (["--json", "--seeds", "2", "-j", "1"], 4):
        done = CliRunner().invoke(cli.twin, [*asked, *more])
        assert done.exit_code == 0, done.output
        shown = json.loads(done.output)["plots"]
        assert len(shown) == count
        assert all(Path(one["path"]).stat().st_size == one["bytes"] for one in shown)
    done = CliRunner().invoke(cli.twin, asked)
    assert [line for line in done.output.splitlines() if line.startswith("plot: ")] == [
        f"plot: {folder / name}.svg" for name in ("time", "regret", "versus", "latency")
    ]
