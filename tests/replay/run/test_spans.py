"""Runs of a span, cut out by its times: logged, audited, computed again, asked what if; and blind ahead."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import cli
from ingest.pipeline.ingest import ingest
from replay.audit import audit, rerun
from replay.log.run_log import RunReader
from replay.run import runner, whatif
from replay.run.runner import RunResult
from replay.sql import query
from replay.store import run_index
from replay.store.run_header import from_payload
from replay.training import drift
from tests.support.measured_pair import DESCRIBED, SAME, measured, put
from tests.support.worlds import toy_scenario
from twin.scenario import prepare
from twin.scenario.prepare import Scenario
from twin.settings.window import TimeSpan
from twin.traces.time_range import TimeRange

S = 10**9
ROOT = Path(__file__).resolve().parents[3]
HALF_HOUR = TimeRange.parse("2026-03-01T01:00", "5400")
"""Inside the training share of two hours and more, which would reach to 84 minutes."""


def scenario(**wan: object) -> Scenario:
    return toy_scenario(wan={"dataset": "own", "streams": 1, "cap_bps": 1e11} | wan)


def cut_run(folder: Path, policy: str = "greedy", **how: object) -> RunResult:
    return runner.run(folder / "store", policy=policy, scenario=scenario(), window=HALF_HOUR, **how)


@pytest.fixture
def base(tmp_path: Path) -> RunResult:
    put(tmp_path, measured(121))
    return cut_run(tmp_path)


def world_of(store: Path, run_id: str) -> dict:
    return RunReader(run_index.folder(store, run_id)).header()


def twin(store: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.twin, ["--store", str(store), *words], obj=cli.Output())


def test_the_header_keeps_the_span_and_other_runs_have_none(tmp_path: Path, base: RunResult) -> None:
    world = world_of(tmp_path / "store", base.run_id)
    assert world["span"] == {"from_ns": 3600 * S, "to_ns": 5400 * S, "of_ns": 7200 * S}
    assert (world["window"], world["end_ns"]) == ("3600 to 5400 s", 1800 * S)
    assert world["origin_epoch_ns"] == 1_772_326_800 * S, "2026-03-01T01:00:00Z"
    header = from_payload(world)
    assert header.window == TimeSpan(3600 * S, 5400 * S, 7200 * S) and header.payload() == world
    usual = runner.run(tmp_path / "store", policy="greedy", scenario=scenario())
    assert "span" not in world_of(tmp_path / "store", usual.run_id)
    other = runner.run(
        tmp_path / "store", policy="greedy", scenario=scenario(), window=TimeRange.parse("3600", "5000")
    )
    digests = {world_of(tmp_path / "store", r.run_id)["config_digest"] for r in (base, usual, other)}
    assert len(digests) == 3


def test_the_end_of_a_series_as_a_span_is_the_test_window(tmp_path: Path, base: RunResult) -> None:
    store, whole = tmp_path / "store", TimeRange.parse(None, "7200")
    usual = prepare.prepare(scenario(), store)
    spanned = prepare.prepare(scenario(), store, window=whole)  # type: ignore[arg-type]
    assert usual.header()["traces"] == spanned.header()["traces"]
    assert usual.filters.bandwidth.mu.tolist() == spanned.filters.bandwidth.mu.tolist()


def test_a_run_of_a_span_is_audited_recomputed_and_branched(tmp_path: Path, base: RunResult) -> None:
    store = tmp_path / "store"
    recomputed = cut_run(tmp_path, reuse=True)
    assert (recomputed.run_id, recomputed.digest) == (base.run_id, base.digest)
    put(tmp_path, measured(180, 121), "later.csv")
    put(tmp_path, measured(30).replace("2026-03-01", "2026-02-01"), "earlier.csv")
    assert rerun.recompute(store, base.run_id).equal
    same = whatif.what_if(store, base.run_id, links=[SAME])
    assert same.differences["tokens"] == 0
    short = whatif.what_if(store, base.run_id, "static", until_s=600.0)
    for run_id in (base.run_id, same.run_id, short.run_id):
        report = audit.audit(store, run_id)
        assert report.ok and report.notes == (), report
        assert world_of(store, run_id)["span"] == world_of(store, base.run_id)["span"]
    span = "(select payload->>'$.span.to_ns' span from events where seq = 0)"
    table = query.query(store, f"select \"window\", span from runs, {span} where run = '{base.run_id}'")
    assert {tuple(row.values()) for row in table.to_pylist()} == {("3600 to 5400 s", str(5400 * S))}


def test_a_span_that_left_the_lake_is_an_error(tmp_path: Path, base: RunResult) -> None:
    put(tmp_path, measured(60))
    report = audit.audit(tmp_path / "store", base.run_id)
    assert report.ok
    assert report.notes == ("not executed again: the series ends at 3540 s; 3600 to 5400 s of it were run",)


def decisions(folder: Path, run: RunResult, until_s: float) -> list[object]:
    events = RunReader(run_index.folder(folder / "store", run.run_id)).events()
    return [(e.type, e.sim_ns, e.payload) for e in list(events)[1:] if e.sim_ns <= until_s * S]


def scrambled(text: str, minute: int) -> str:
    """The same measurements, the rates of which are others from that minute on."""
    head, *lines = text.splitlines()
    keep, rest = lines[: 6 * minute], [line.split(",") for line in lines[6 * minute :]]
    rates = np.random.default_rng(7).permutation([float(cells[3]) / 3 for cells in rest])
    changed = [
        ",".join([*cells[:3], f"{rate:.1f}", cells[4]]) for cells, rate in zip(rest, rates, strict=True)
    ]
    return "\n".join([head, *keep, *changed]) + "\n"


@pytest.mark.parametrize("minute", [61, 75])
def test_what_comes_after_a_moment_changes_no_decision_before_it(tmp_path: Path, minute: int) -> None:
    made = []
    for name, text in (("a", measured(121)), ("b", scrambled(measured(121), minute))):
        (tmp_path / name).mkdir()
        put(tmp_path / name, text)
        made.append(decisions(tmp_path / name, cut_run(tmp_path / name), 60 * (minute - 60) - 1))
    assert len(made[0]) > 5 and made[0] == made[1]


COMPOSED = {"dataset": None, "level": {"dataset": "levels"}, "variation": {"dataset": "own"}}


@pytest.mark.parametrize("recipe", [{}, COMPOSED], ids=["measured", "composed"])
def test_filters_and_variation_of_a_span_are_made_of_its_past_alone(tmp_path: Path, recipe: dict) -> None:
    found = []
    for name, text in (("a", measured(121)), ("b", scrambled(measured(121), 60))):
        levels = tmp_path / name / "levels"
        levels.mkdir(parents=True)
        (levels / "dataset.toml").write_text(DESCRIBED.replace("own", "levels"))
        (levels / "links.csv").write_text(measured(2))
        store = tmp_path / name / "store"
        ingest([levels], store)
        put(tmp_path / name, text)
        asked = scenario(default_rtt_s=0.02, **recipe)
        found.append(prepare.prepare(asked, store, window=HALF_HOUR))  # type: ignore[arg-type]
    one, other = (setup.filters for setup in found)
    assert one.bandwidth.mu.tolist() == other.bandwidth.mu.tolist()
    assert one.intervals == other.intervals and one.nis.tolist() == other.nis.tolist()
    assert found[0].trace_digest != found[1].trace_digest


def test_the_example_of_the_docs_runs_and_mistakes_are_errors(tmp_path: Path) -> None:
    ingest([ROOT / "traces" / "synthetic-tri"], tmp_path)
    page = (ROOT / "docs" / "guides" / "replay.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("twin replay") and " --from " in line]
    made = twin(tmp_path, *line.split()[1:], "--json")
    assert made.exit_code == 0, made.output
    assert world_of(tmp_path, json.loads(made.stdout)["run"])["end_ns"] == 1800 * S
    for words, message in (
        (["--from", "600"], "begin at 1980 s (2020-01-01T00:33:00Z) or later"),
        (["--from", "9000", "--window", "test"], "--window does not go with --from and --to"),
        (["--to", "5", "--window", "test"], "--window does not go with --from and --to"),
        (["--run", "latest", "--from", "60"], "--from does not go with --run"),
        (["--resume", "latest", "--to", "60"], "--to does not go with --resume"),
    ):
        refused = twin(tmp_path, "replay", *words)
        assert refused.exit_code and message in str(refused.exception), refused.output
    assert len(run_index.all_ids(tmp_path)) == 1


def test_a_chosen_stretch_is_no_news_of_today(tmp_path: Path, base: RunResult) -> None:
    store = tmp_path / "store"
    assert drift.newest(store, scenario().name) is None
    usual = runner.run(store, policy="greedy", scenario=scenario())
    cut_run(tmp_path, "static")
    assert drift.newest(store, scenario().name) == usual.run_id
