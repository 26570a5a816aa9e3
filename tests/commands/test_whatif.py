"""The commands around logged runs: valid JSON, words for people, exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cli
from replay.log.run_log import RunReader, RunWriter
from replay.store import run_index
from tests.support.toys import toy_run, without_lake


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    toy_run(tmp_path, "greedy")
    return tmp_path


def twin(store: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.twin, ["--store", str(store), *words], obj=cli.Output())


def test_every_command_says_it_in_words_and_in_json(store: Path) -> None:
    base = run_index.all_ids(store)[0]
    for words, schema, told in (
        (["replay", "--run", base, "--until", "100"], "twin.rerun/1", "equal in every byte"),
        (["replay", "--run", base, "-p", "static", "--from-decision", "2"], "twin.whatif/1", "they part"),
        (["offpolicy", base, "-p", "static"], "twin.offpolicy/1", "no logged decision was random"),
        (["trace", base, "--to", "20", "--out", str(store / "t.json")], "twin.trace/1", "iterations"),
        (["report", base, "--vs", base], "twin.report/1", ".html"),
        (["policies"], "twin.policies/1", "checkpoints"),
    ):
        shown = twin(store, *words)
        assert shown.exit_code == 0 and told in shown.output, shown.output
        made = twin(store, *words, "--json")
        assert json.loads(made.stdout)["schema"] == schema


def test_the_latest_run_to_replay_is_the_newest_and_is_named(store: Path) -> None:
    (newest,) = run_index.all_ids(store)
    for kind, links in (("a replay", "d0 <> d1 = 0.5"), ("a what-if", "d0 <> d1 = 0.25")):
        done = twin(store, "replay", "--run", "latest", "--link", links, "--json")
        made = json.loads(done.stdout)
        assert made["base_run"] == newest and f"latest is {newest}, {kind}" in done.stderr
        newest = made["run"]
    assert len(made["base_links"]) == 1
    assert "what if of" in twin(store, "status").output


def test_a_run_that_is_not_reproduced_ends_with_3(store: Path) -> None:
    events = list(RunReader(run_index.folder(store, run_index.all_ids(store)[0])).events())
    done = next(event for event in events if event.type == "iteration_done")
    done.payload["energy_j"] += 1.0
    with RunWriter.create(run_index.folder(store, "forged")) as writer:
        for event in events[:-1]:
            writer.append(event.sim_ns, event.type, event.payload, wall=event.wall)
        writer.finish(events[-1].payload["totals"], sim_ns=events[-1].sim_ns)
    shown = twin(store, "replay", "--run", "forged")
    assert shown.exit_code == 3 and f"event {done.seq} is the first that differs" in shown.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["replay", "--until", "5"], "belongs to --run"),
        (["replay", "--run", "latest", "--from-decision", "5"], "need --policy"),
        (["replay", "--run", "latest", "-p", "grady"], "did you mean 'greedy'"),
        (["trace", "latest", "--from", "9", "--to", "1"], "write a window"),
        (["policies", "--rollback"], "nothing to go back to"),
        (["retrain", "--once", "--on-drift"], "say one of"),
        (["bench", "-p", "static", "-p", "mpc", "--checkpoint", "abc"], "static is not learned"),
        (["bench", "--prove", "--no-bound"], "leave --no-bound out"),
    ],
)
def test_mistakes_are_told(store: Path, words: list[str], told: str) -> None:
    shown = twin(store, *words)
    assert shown.exit_code != 0 and told in str(shown.exception)
