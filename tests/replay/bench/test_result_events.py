"""What a benchmark found: events of a run of its own, the figures of the tables, asked for in SQL."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
from replay.audit import audit
from replay.bench.cells import RunOutcome
from replay.bench.result import Bench
from replay.bench.result_events import events, log
from replay.log.events import check
from replay.log.run_log import RunReader
from replay.report import page
from replay.sql.query import query
from replay.store import run_index
from replay.store.run_index import BENCH
from tests.support.toys import BENCHED, toy_bench, without_lake

Found = tuple[Path, Bench, str]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    store = tmp_path_factory.mktemp("bench")
    result = toy_bench(store)
    (run,) = log(store, result)
    return store, result, run


def test_a_run_holds_what_was_found(found: Found) -> None:
    store, result, run = found
    reader = RunReader(run_index.folder(store, run))
    logged = list(reader.events())
    assert reader.finished and reader.header()["policy"] == BENCH and run.startswith("toy-3-bench-s0-")
    pairs, fronts = len(BENCHED) + 1, len(BENCHED)  # each against mpc and static, but none against itself
    found_in = {"policies_compared": pairs, "regret_measured": 2 * len(BENCHED), "front_reached": fronts}
    kinds = [kind for kind, count in found_in.items() for _ in range(count)]
    assert [event.type for event in logged] == ["run_started", *kinds, "run_finished"]
    assert [(e.type, e.payload) for e in logged[1:-1]] == list(events(result.scenarios[0]))
    for event in logged:
        check(event.type, event.payload)
    one = logged[1].payload
    assert one["seeds"] == [0, 1] and {*one["runs"], *one["base_runs"]} < {*run_index.all_ids(store)}
    assert logged[-1].payload["totals"]["findings"] == len(kinds)


def test_sql_gives_the_figures_of_the_tables(found: Found) -> None:
    store, result, _ = found
    rows = query(store, "SELECT * FROM verdicts ORDER BY seq").to_pylist()
    expected = [
        (row, pair) for row in result.to_json()["scenarios"][0]["standings"] for pair in row["versus"]
    ]
    assert len(rows) == len(expected)
    for row, (summary, pair) in zip(rows, expected, strict=True):
        assert (row["policy"], row["base"], row["verdict"]) == (
            summary["policy"],
            pair["base"],
            pair["verdict"],
        )
        assert [row[name] for name in ("worlds", "wins", "losses", "ties")] == [
            pair[name] for name in ("worlds", "wins", "losses", "ties")
        ]
        for name, kept in (("saved", "mean"), ("tokens", "over_time")):
            ends = [row[name], row[f"{name}_low"], row[f"{name}_high"]]
            assert ends == [pair[kept]["mean"], pair[kept]["low"], pair[kept]["high"]]
        assert row["middle"] == pair["middle"]["mean"]
    front = query(store, "SELECT * FROM fronts ORDER BY seq").to_pylist()
    whole = result.scenarios[0].front
    assert whole is not None
    for row, reach in zip(front, whole.reaches, strict=True):
        assert (row["policy"], row["points"]) == (reach.policy, reach.points)
        assert (row["coverage"], row["hypervolume"], row["exact"]) == (
            reach.coverage,
            reach.volume,
            whole.exact,
        )


def test_sql_gives_regrets_noise_and_load(found: Found, tmp_path: Path) -> None:
    _, result, _ = found
    plain = result.scenarios[0]
    noised = replace(plain.worlds[0], world=replace(plain.worlds[0].world, clip=0.1))
    scenario = replace(plain, noisy={0.1: (noised,)}, loads={1.2: plain.worlds})
    (run,) = _logged_beside(found, tmp_path, replace(result, scenarios=(scenario,)))
    expected = scenario.to_json()
    of = f"WHERE run = '{run}' ORDER BY seq"
    regrets = query(tmp_path, f"SELECT policy, seed, level, of_run, regret FROM regrets {of}").to_pylist()
    rows = [(row, world) for world in expected["worlds"][:3] for row in world["rows"]]
    assert [tuple(row.values()) for row in regrets] == [
        (row["policy"], world["seed"], world["clip"], row["run"], row["regret"]) for row, world in rows
    ]
    noise = query(tmp_path, f"SELECT policy, level AS clip, worlds, median, worst FROM robustness {of}")
    assert noise.to_pylist() == expected["robustness"] and noise.column("policy").to_pylist()[-1] == "bound"
    load = query(tmp_path, f"SELECT * FROM steadiness {of}").to_pylist()
    assert len(load) == 2 * len(BENCHED)
    for row, kept in zip(load, expected["load"], strict=True):
        assert [row[name] for name in ("policy", "load", "worlds", "worst", "queued", "utilisation")] == [
            kept[name] for name in ("policy", "load", "worlds", "worst", "queued", "utilisation_owned")
        ]
        assert [row["stability"], row["stability_low"], row["stability_high"]] == [
            kept["stability"][name] for name in ("mean", "low", "high")
        ]


def _logged_beside(found: Found, store: Path, result: Bench) -> tuple[str, ...]:
    """Log `result` in a store that has the runs of the other one."""
    (store / "runs").mkdir()
    for run in run_index.all_ids(found[0]):
        (store / "runs" / run).symlink_to(run_index.folder(found[0], run))
    return log(store, result)


def test_the_same_result_is_the_same_run(found: Found) -> None:
    store, result, run = found
    assert log(store, result) == (run,)
    unfinished = Path(f"{run_index.folder(store, run)}-2")
    unfinished.mkdir()  # killed before anything was durable
    assert log(store, result) == (run,)
    other = replace(result.scenarios[0], front=None)
    assert log(store, replace(result, scenarios=(other,))) == (f"{run}-3",)


def test_nobody_ran_nothing_is_said(found: Found, tmp_path: Path) -> None:
    scenario = found[1].scenarios[0]
    none = tuple(replace(p, outcomes=(RunOutcome(None, "does not fit"),) * 3) for p in scenario.worlds)
    empty = replace(found[1], scenarios=(replace(scenario, worlds=none, front=None),))
    assert log(tmp_path, empty) == () and run_index.all_ids(tmp_path) == ()


def test_it_is_audited_and_names_its_runs(found: Found) -> None:
    store, result, run = found
    report = audit.audit(store, run)
    assert report.ok and report.notes == ("a log of bench: it is checked, not executed again",)
    *_, end = RunReader(run_index.folder(store, run)).events()
    assert set(end.payload["totals"]["runs"]) == set(result.policies)
    members = [one for runs in end.payload["totals"]["runs"].values() for one in runs]
    assert set(members) <= set(run_index.all_ids(store)) and len(members) == 2 * len(result.policies)


def test_the_page_of_a_bench_sorts_its_policies_and_says_which_is_fastest(found: Found) -> None:
    store, result, run = found
    text = page.render(store, run)
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th><td class="n( best)?">([\d.,]+)</td>', text)[:3]
    times = [float(value.replace(",", "")) for _, _, value in rows]
    assert {name for name, *_ in rows} == set(result.policies) and times == sorted(times)
    assert rows[0][1] == " best" and rows[-1][1] == ""
    assert f"{rows[0][0]} needs the least time: {rows[0][2]} µs a token, mean over 2 worlds" in text
    assert "<h1>Benchmark of toy-3:" in text and "Paired differences" in text and f"twin audit {run}" in text


def test_a_bench_in_one_world_is_a_run_and_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    asked = ["--store", str(tmp_path), "bench", "-p", "static", "-p", "single", "--no-bound"]
    done = CliRunner().invoke(cli.twin, asked)
    assert done.exit_code == 0, done.output
    record = run_index.find(tmp_path, "latest")
    members = [run for run in run_index.all_ids(tmp_path) if run != record]
    assert f"bench: {record}" in done.output and all(f": run {run}" in done.output for run in members)
    shown = CliRunner().invoke(cli.twin, ["--store", str(tmp_path), "report", "latest"])
    assert f"latest is {record}, the record of a benchmark" in shown.stderr
    text = (tmp_path / "reports" / f"{record}.html").read_text(encoding="utf-8")
    assert all(run in text for run in members) and "Runs over time" in text
    removed = CliRunner().invoke(cli.twin, ["--store", str(tmp_path), "rm", *members, "--yes"])
    assert removed.exit_code == 0 and "in this store any more" in page.render(tmp_path, record)


def test_the_command_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    asked = ["--store", str(tmp_path), "bench", "-p", "static", "-p", "single", "--seeds", "2", "-j", "1"]
    done = CliRunner().invoke(cli.twin, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    (run,) = json.loads(done.output)["verdicts"]
    assert RunReader(run_index.folder(tmp_path, run)).header()["policy"] == BENCH
    assert f"bench: {run}" in CliRunner().invoke(cli.twin, asked).output
