"""The first screen: what a run gained, where it trained, how to make it again, several runs at once."""

import json
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import cli
from ingest.core.errors import UsageError
from replay.log.run_log import RunReader, RunWriter
from replay.metrics.paired_comparison import PairedDifference
from replay.report import answer, identity, page, provenance, several_runs, topology
from replay.report.decisions import decisions
from replay.report.drawing.formatting import percent
from replay.report.drawing.section import Section
from replay.report.run_data import LAID_S, RunData, fold_run
from tests.support.histories import history, plan, started, write
from tests.support.toys import toy_run, without_lake


def html(section: Section | None) -> str:
    assert section is not None
    return str(section.html)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("log")
    write(store / "runs" / "made-up")
    return store


@pytest.fixture
def run(log: Path) -> RunData:
    return fold_run(RunReader(log / "runs" / "made-up").events())[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    store = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        without_lake(patch)
        runs = {policy: toy_run(store, policy).run_id for policy in ("static", "greedy")}
    return store, runs


def test_a_saving_is_one_less_the_ratio_of_tokens_and_a_run_is_not_its_own_rival(
    world: tuple[Path, dict[str, str]],
) -> None:
    store, runs = world
    shown, kpis = fold_run(RunReader(store / "runs" / runs["greedy"]).events())
    found = answer.savings(store, runs["greedy"], shown, runs)
    static = fold_run(RunReader(store / "runs" / runs["static"]).events())[1]
    assert list(found) == ["static"]
    assert found["static"].mean == pytest.approx(1 - static.progress_tokens / kpis.progress_tokens)
    assert answer.savings(store, runs["static"], shown, {"static": runs["static"]}) == {}


def test_the_sentence_counts_only_differences_that_are_there(log: Path, run: RunData) -> None:
    kpis = fold_run(RunReader(log / "runs" / "made-up").events())[1]
    found = {
        "static": PairedDifference("saved", 0.25, 0.2, 0.3),
        "single": PairedDifference("saved", -0.1, -0.2, -0.05),
    }
    text = html(answer.answer(run, "made-up", kpis, found, None))
    assert "25.0\u202f% less than static, 10.0\u202f% more than single" in text
    assert text.count('class="card good"') == text.count('class="card bad"') == 1
    assert "twin report made-up --compare" in text  # the bound is not computed
    even = html(answer.answer(run, "r", kpis, {"static": PairedDifference("saved", 0.01, -0.1, 0.1)}, None))
    assert "as much as static" in even and "no different" in even
    assert "twin replay --run r --policy single" in even  # what is missing, and how to get it


def test_the_picture_colours_a_link_by_the_share_of_its_bandwidth_that_was_sent(run: RunData) -> None:
    pair = run.used_links[0]
    mean_bps = run.observed_bps[pair].mean
    assert mean_bps is not None
    used = 8 * run.sent_bytes(pair) / (mean_bps * 3600)
    assert topology.use(run, pair) == pytest.approx(used) and 0.02 < used < 1
    text = html(topology.topology(run))
    assert text.count('class="use u') == 2 and text.count('class="idle"') == 4
    assert "<b>oslo</b><span>4 GPUs · " in text and "synthetic" in text
    assert topology.topology(RunData(header=run.header)) is None


def test_a_picture_of_many_sites_shows_those_that_were_used(run: RunData) -> None:
    domains = [
        *run.header["scenario"]["cluster"]["domains"],
        *({"name": f"r{k}", "gpus": 1} for k in range(30)),
    ]
    scenario = {**run.header["scenario"], "cluster": {"domains": domains}}
    run.header = {**run.header, "scenario": scenario}
    assert "30 sites are not drawn" in html(topology.topology(run))


def test_dates_are_real_and_an_arbitrary_day_is_said(run: RunData, tmp_path: Path) -> None:
    assert "<td>2023-11-14 22:18:20</td>" in html(decisions(run)) and not run.undated
    run.header["origin_epoch_ns"] = 946_684_800 * 10**9
    assert "an arbitrary day" in html(identity.head(run, "old"))
    assert "the day is arbitrary" in html(provenance.scenario(run, "old"))
    run.header["origin_epoch_ns"] = round((946_684_800 + LAID_S) * 1e9)
    assert not run.undated


def test_the_printed_command_makes_the_run_again(
    world: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, runs = world
    without_lake(monkeypatch)
    header = RunReader(store / "runs" / runs["greedy"]).header()
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text(yaml.safe_dump(header["scenario"]), encoding="utf-8")
    words = provenance.command(header, "toy.yaml")
    assert words is not None
    done = CliRunner().invoke(cli.twin, [*shlex.split(words)[1:], "--store", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)["run"]
    assert RunReader(tmp_path / "runs" / made).digest() == RunReader(store / "runs" / runs["greedy"]).digest()


def test_what_needs_its_origin_has_no_command_for_another_store() -> None:
    assert provenance.command({**started(), "branch": {"run": "a"}}, "x.yaml") is None
    timed = {**started(), "span": {"from_ns": 90 * 10**9, "to_ns": 100 * 10**9, "of_ns": 10**12}}
    assert "--from 90 --to 100" in str(provenance.command(timed, "x.yaml"))


def test_what_opens_in_the_table_holds_every_plan_once(run: RunData) -> None:
    text = html(decisions(run))
    opened = json.loads(re.search(r'id="decision-data">(.*?)</script>', text)[1])  # type: ignore[index]
    assert len(opened["rows"]) == 12 and len(set(opened["plans"])) == len(opened["plans"]) < 24
    facts, compared, count = opened["rows"][0]
    assert dict(facts)["expected iteration"] == "10 s" and count == len(compared) == 2
    assert compared[0][0] == 0 and compared[0][2] == "10"


def test_several_runs_stand_on_one_page(world: tuple[Path, dict[str, str]]) -> None:
    store, runs = world
    ids = list(runs.values())
    text = several_runs.write(store, ids).read_text(encoding="utf-8")
    assert "2 runs beside each other" in text and "All of them saw the same world" in text
    tokens = re.search(r'aria-label="Tokens trained[^"]*"', text)
    assert tokens is not None and "static: " in tokens[0] and "greedy: " in tokens[0]
    shown, _ = fold_run(RunReader(store / "runs" / runs["greedy"]).events())
    saved = answer.savings(store, runs["greedy"], shown, runs)["static"]
    assert f">{percent(saved.mean, sign='+')}<" in text  # the figure of the page of one run
    with pytest.raises(UsageError, match="different runs"):
        several_runs.render(store, [ids[0], ids[0]])


def test_runs_of_other_worlds_are_not_paired(log: Path, tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a", policy="mpc")
    with RunWriter.create(tmp_path / "runs" / "b") as writer:
        for sim_ns, kind, payload, wall in history(4):
            if kind == "run_started":
                payload = {**payload, "policy": "greedy", "seed": 3, "origin_epoch_ns": 0}
            writer.append(sim_ns, kind, payload, wall=wall)
        writer.finish({})
    text = several_runs.render(tmp_path, ["a", "b"])
    assert "They saw different worlds" in text and '{"origin":null}' in text and "Synthetic data." in text
    with RunWriter.create(tmp_path / "runs" / "t") as writer:
        writer.append(0, "run_started", {**started(), "policy": "train"})
        writer.finish({})
    with pytest.raises(UsageError, match="t is the record of a training"):
        several_runs.render(tmp_path, ["a", "t"])


def day(pairs: list[tuple[int, int]]) -> Iterator[tuple[int, str, dict[str, Any], dict[str, Any]]]:
    """A day of history: a decision, its candidates and all links every 240 s, iterations every minute."""
    one = {kind: payload for _, kind, payload, _ in history(1)}
    spread = random.Random(0)
    candidates = [
        {"plan": plan(k, 20 - n), "score": spread.random(), "iter_s": 9.1234, "utilisation": 0.6, "usd": 0.01}
        for n in range(2) for k in range(3)
    ]  # fmt: skip
    yield 0, "plan_applied", one["plan_applied"], {}
    for number in range(360):
        now = number * 240 * 10**9
        bps = {pair: 2e9 * (0.5 + spread.random()) for pair in pairs}
        yield (
            now,
            "state_estimated",
            {"links": [[*pair, bps[pair], 0.05 + 0.1 * spread.random(), 0.04] for pair in pairs]},
            {},
        )
        yield now, "triggered", {**one["triggered"], "number": number}, {}
        details = {**one["decided"], "number": number, "candidates": candidates, "fallback": None}
        yield (
            now,
            "decided",
            {**details, "action": "turn" if number % 2 else "hold"},
            {"latency_s": 0.01, "coordination_s": 0.02},
        )
        yield (
            now,
            "link_observed",
            {"sampled_ns": now, "samples": [[*pair, bps[pair], 0.04] for pair in pairs]},
            {},
        )
        for minute in range(4):
            start_ns = now + minute * 60 * 10**9
            durations = [[6, round((9 + spread.random()) * 1e9)]]
            yield (
                start_ns,
                "iteration_done",
                {**one["iteration_done"], "start_ns": start_ns, "durations": durations},
                {},
            )


def test_a_page_of_a_day_over_eight_sites_is_under_one_and_a_half_megabytes(tmp_path: Path) -> None:
    """Links and decisions every 240 s: 360 points a series of a link, which is thinned at 400."""
    names = [f"provider-region-{k}a" for k in range(8)]
    header = started()
    header["scenario"]["cluster"]["domains"] = [{"name": name, "gpus": 8} for name in names]
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
    with RunWriter.create(tmp_path / "runs" / "day") as writer:
        writer.append(0, "run_started", {**header, "end_ns": 86_400 * 10**9})
        for at, kind, payload, wall in day(pairs):
            writer.append(at, kind, payload, wall=wall)
        writer.finish({}, sim_ns=86_400 * 10**9)
    text = page.render(tmp_path, "day")
    assert len(text.encode()) < 1.5e6
    assert len(re.findall('"name":"telemetry"', text)) == 56
