"""Every command, in this process: done, mistaken, on a damaged log, locked out, interrupted.

What a process adds (signals, pipes, exit codes of the interpreter) is in tests/commands/test_cli.py.
"""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from ingest.core.durable import Lock
from ingest.core.errors import LockedError
from replay.log.run_log import RunReader, RunWriter
from replay.metrics.paired_comparison import PairedDifference
from replay.store import checkpoint_registry, run_index
from replay.training.retrain import RetrainResult
from replay.training.train import TrainingResult
from tests.support.command_cases import COMMANDS, MISTAKES, SCHEMAS
from tests.support.commands import SINGLE, STATIC, Call, caller
from tests.support.histories import killed

LONGEST_S = 120
"""What no case takes, even where many other processes run."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A case that takes too long fails where it is."""

    def late(*_: Any) -> None:
        pytest.fail(f"takes longer than {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsysbinary, monkeypatch)


@pytest.fixture
def kept(kept_store: Path) -> Path:
    """The store that no command here changes."""
    return kept_store


@pytest.fixture
def store(kept: Path, tmp_path: Path) -> Path:
    """A copy, for commands that write."""
    shutil.copytree(kept, tmp_path / "store")
    return tmp_path / "store"


CASES = (
    "gpu_model,layers,hidden,heads,seq,tp,pp,dp,micro_batch,global_batch,domains,wan_bps,wan_latency_s\n"
    "A100-80,40,6144,48,2048,8,4,2,1,128,2,10e9,0.015\n"
)


def words(command: str, tmp_path: Path) -> list[str]:
    """The words of a command, its files in a folder of this test, its run by the whole name."""
    cases = tmp_path / "cases.csv"
    cases.write_text(CASES)
    said = [word.format(tmp=tmp_path, cases=cases) for word in COMMANDS[command]]
    return [run_index.find(tmp_path / "store", word) if word == STATIC else word for word in said]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_tells_people_in_text_and_programs_in_one_object(
    store: Path, tmp_path: Path, call: Call, command: str
) -> None:
    said = words(command, tmp_path)
    told = call(store, *said, "--json")
    assert told.code == 0, told.err
    schema = told.json["schema"]
    assert schema.startswith("twin.") and schema == SCHEMAS.get(command, schema) != "twin.error/1"
    shown = call(store, *said)
    assert shown.code == 0 and shown.out.strip() and not shown.out.startswith(b"{"), shown.err
    assert (
        b"\x1b" not in told.out + shown.out and "\x1b" not in told.err + shown.err
    )  # no terminal, no colour


def test_a_dropped_set_is_told_and_gone(store: Path, call: Call) -> None:
    told = call(store, "traces", "synthetic-tri", "--drop", "--json")
    rows = told.json["rows"]["link_samples"]
    assert (told.code, told.json["schema"], told.json["name"]) == (0, "twin.drop/1", "synthetic-tri")
    assert "synthetic-tri" not in {row["dataset"] for row in call(store, "traces", "--json").json["rows"]}
    shown = call(store, "traces", "synthetic-quad", "--drop")
    assert shown.code == 0 and shown.out.startswith(b"synthetic-quad taken out: link_samples ")
    again = call(store, "ingest", "traces/synthetic-tri", "--json")
    assert again.json["rows"] == {"link_samples": rows}


def test_a_store_goes_to_a_copy_and_comes_back(store: Path, tmp_path: Path, call: Call) -> None:
    copy, new = str(tmp_path / "copy"), tmp_path / "new"
    made = call(store, "backup", copy, "--json").json
    assert made["schema"] == "twin.backup/1" and made["check"]["ok"]
    assert call(new, "restore", copy, "--dry-run").out.startswith(b"would write") and not new.exists()
    back = call(new, "restore", copy, "--json").json
    assert (back["schema"], back["files"]) == ("twin.restore/1", made["copied"]) and back["check"]["ok"]
    listed = [[run["run"] for run in call(one, "runs", "--json").json["runs"]] for one in (store, new)]
    assert set(listed[0]) == set(listed[1])
    assert call(new, "audit", run_index.find(new, STATIC)).code == 0
    again = call(new, "restore", copy)
    assert again.code == 2 and "is not empty" in again.err


def test_a_plan_is_written_followed_and_audited(store: Path, tmp_path: Path, call: Call) -> None:
    path = str(tmp_path / "plan.yaml")
    planned = call(store, "plan", "--top", "2", "--pick", "2", "--out", path, "--json").json
    run = call(store, "replay", "--plan", path, "--json").json
    sql = f"select policy, moves from runs where run = '{run['run']}'"
    assert call(store, "sql", sql, "--json").json["rows"] == [{"policy": "kept", "moves": 0}]
    shares = planned["plans"][1]["plan"]["shares"]
    assert (
        call(store, "audit", run["run"], "--decision", "0", "--json").json["recorded"]["plan"]["shares"]
        == shares
    )
    assert call(store, "audit", run["run"]).code == 0
    assert call(store, "audit", run["run"], "--decision", "0").code == 0
    refused = call(store, "replay", "--plan", path, "--scenario", "quad-70b")
    assert refused.code != 0 and "quad-70b" in refused.err and len(refused.err.strip().splitlines()) <= 3


def test_a_plan_for_sites_in_words_is_followed_without_a_scenario_file(
    store: Path, tmp_path: Path, call: Call
) -> None:
    path = tmp_path / "plan.yaml"
    planned = call(store, *COMMANDS["plan --model"], "--out", str(path), "--json").json
    assert any("us = us-east-1 (by name)" in line for line in planned["assumed"])
    run = call(store, "replay", "--plan", str(path), "--json").json
    found = call(
        store, "sql", f"select scenario, domains from runs where run = '{run['run']}'", "--json"
    ).json
    assert found["rows"] == [{"scenario": "llama2-7b-2-sites", "domains": ["us", "eu"]}]
    path.write_text(path.read_text().replace("llama2-7b\n", "llama2-13b\n", 1))
    refused = call(store, "replay", "--plan", str(path))
    assert refused.code == 2 and "a plan for the model llama2-13b" in refused.err


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_code_and_nothing_else_on_stdout(
    kept: Path, tmp_path: Path, call: Call, mistake: str
) -> None:
    done = call(kept, *[word.format(tmp=tmp_path) for word in MISTAKES[mistake]], "--json")
    assert done.code == (3 if "another run" in mistake else done.code) and done.code in (1, 2, 3)
    assert done.json["schema"] == ("twin.audit/1" if "another run" in mistake else "twin.error/1")
    if done.code != 3:
        assert done.err.startswith("twin: ")


def test_who_says_nothing_is_shown_the_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["twin"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err.startswith("Usage: twin")


def test_a_store_is_a_folder(tmp_path: Path, call: Call) -> None:
    (tmp_path / "file").write_text("x")
    done = call(tmp_path / "file", "status")
    assert done.code == 2 and "is a file" in done.err


UNREAD = ("--quarantine", "--dry-run")
"""Of commands that are for damaged runs, too."""
READERS = [name for name, said in COMMANDS.items() if STATIC in said and not {*UNREAD} & {*said}]
READERS = [name for name in READERS if name.split()[0] not in ("tag", "note")]  # which read no event


@pytest.mark.parametrize("command", [*READERS, "sql"])
def test_no_command_takes_a_damaged_log_for_a_sound_one(
    store: Path, tmp_path: Path, call: Call, command: str
) -> None:
    # All of them: a slow disk makes several, and a command that tells of a part reads no other.
    segments = sorted(run_index.folder(store, run_index.find(store, STATIC)).glob("*.parquet"))
    for segment in segments:
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
    done = call(store, *words(command, tmp_path), "--json")
    assert done.code == 3 and any(segment.name in done.out.decode() for segment in segments)


def test_quarantine_moves_what_is_damaged_and_says_what(store: Path, call: Call) -> None:
    folder = run_index.folder(store, run_index.find(store, STATIC))
    (folder / "stranger.txt").write_text("x")
    shown = call(store, "audit", STATIC, "--quarantine")
    assert shown.code == 0 and b"stranger.txt" in shown.out and not (folder / "stranger.txt").exists()
    assert b"nothing to move" in call(store, "audit", STATIC, "--quarantine").out


def test_rm_asks_and_takes_only_yes(store: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.runs._answered", lambda question: "static" not in question)
    kept = call(store, "rm", STATIC, SINGLE)
    assert kept.code == 1 and "nothing was removed" in kept.err and len(run_index.all_ids(store)) == 2
    gone = call(store, "rm", SINGLE, "--json")
    assert gone.code == 0 and gone.json["removed"] and gone.json["runs"][0]["run"].startswith(SINGLE)
    assert call(store, "rm", STATIC, "--yes").code == 0 and run_index.all_ids(store) == ()
    assert call(store, "verify").code == 0


def test_runs_lists_a_damaged_run_with_its_problem(store: Path, call: Call) -> None:
    folder = run_index.folder(store, run_index.find(store, STATIC))
    next(folder.glob("*.parquet")).write_bytes(b"x")
    shown = call(store, "runs").out.decode()
    assert f"{folder.name}: {folder}" in shown and SINGLE in shown


def cut_off(store: Path) -> Path:
    """The run as if its writer had been killed before the last event."""
    folder = run_index.folder(store, run_index.find(store, STATIC))
    killed(folder)
    return folder


def test_a_run_that_was_killed_is_checked_as_far_as_it_goes(store: Path, call: Call) -> None:
    stored = RunReader(cut_off(store)).contents().end
    again = call(store, "replay", "--run", STATIC, "--json")
    assert again.code == 0 and again.json["equal"] and again.json["events"] == stored > 1
    checked = call(store, "audit", STATIC, "--json")
    assert checked.code == 0 and checked.json["events"] == stored, checked.out
    assert call(store, "replay", "--resume", STATIC, "--json").code == 0
    assert call(store, "audit", STATIC).code == 0


LOCKED = {
    "replay --resume": (["replay", "--resume", STATIC], "run"),
    "compact": (["compact", STATIC], "run"),
    "audit --quarantine": (["audit", STATIC, "--quarantine"], "run"),
    "retrain": (["retrain", "--once"], "retrain.lock"),
    "policies --rollback": (["policies", "--rollback"], "retrain.lock"),
    "train": (["train", "--algorithm", "toy"], "train.lock"),
}


@pytest.mark.parametrize("command", LOCKED)
def test_a_second_writer_is_told_who_holds_the_lock(store: Path, call: Call, command: str) -> None:
    said, lock = LOCKED[command]
    folder = cut_off(store)  # an unfinished run is one that somebody may be writing
    with Lock(folder / ".lock" if lock == "run" else store / lock):
        done = call(store, *said, "--json")
    assert done.code == LockedError.exit_code and "pid" in done.err
    assert done.json["error"] == "LockedError"


INTERRUPTED = {
    "ingest": ("ingest.pipeline.ingest.ingest", ["ingest", "traces"]),
    "fetch": ("ingest.public.fetch.fetch", ["fetch", "wanify-aws8"]),
    "train": ("replay.training.train.train", ["train"]),
    "queue": ("replay.logqueue.comparison.compare", ["queue", "examples/queue.swf"]),
    "replay": ("replay.run.runner.run", ["replay", "-p", "static"]),
    "replay --resume": ("replay.run.runner.resume", ["replay", "--resume", STATIC]),
    "replay --run": ("replay.audit.rerun.recompute", ["replay", "--run", STATIC]),
    "what if": ("replay.run.whatif.what_if", ["replay", "--run", STATIC, "--policy", "single"]),
    "offpolicy": ("replay.offpolicy.evaluation.estimate", ["offpolicy", STATIC, "--policy", "single"]),
    "bench": ("replay.bench.comparison.compare", ["bench"]),
    "audit": ("replay.audit.audit.audit", ["audit", STATIC]),
    "compact": ("replay.log.compaction.compact", ["compact", STATIC]),
    "report": ("replay.report.page.write", ["report", STATIC]),
    "trace": ("replay.report.chrome_trace.write", ["trace", STATIC]),
    "retrain": ("replay.training.retrain.retrain", ["retrain", "--once"]),
    "retrain --every": ("replay.training.scheduled_retraining.follow", ["retrain", "--every", "6h"]),
    "retrain --on-drift": ("replay.training.scheduled_retraining.follow", ["retrain", "--on-drift"]),
}


@pytest.mark.parametrize("command", INTERRUPTED)
def test_ctrl_c_ends_a_command_with_130(
    kept: Path, call: Call, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    name, said = INTERRUPTED[command]
    monkeypatch.setattr(name, press)
    done = call(kept, *said)
    assert done.code == 130 and done.out == b""
    assert done.err.splitlines()[-1].startswith("twin: interrupted") and "latest" not in done.err


def pressed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_names_the_very_run_that_can_go_on(
    store: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("replay.run.runner.query.keep", pressed)  # the run is whole, its cache is not
        before = {*run_index.all_ids(store)}
        assert call(store, "replay", "-p", "static").err.splitlines()[-1] == "twin: interrupted"
    with monkeypatch.context() as patch:
        patch.setattr("replay.log.run_log.RunWriter.finish", pressed)
        done = call(store, "replay", "-p", "single")
    (left,) = (run for run in run_index.all_ids(store) if run not in before and "single" in run)
    assert done.code == 130
    assert done.err.splitlines()[-1] == f"twin: interrupted; `twin replay --resume {left}` finishes the run"
    assert call(store, "replay", "--resume", left).code == 0


def test_ctrl_c_before_anything_is_stored_promises_nothing(
    store: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.run.runner.play", pressed)
    assert call(store, "replay", "-p", "single").err.splitlines()[-1] == "twin: interrupted"


def test_ctrl_c_in_a_bench_of_several_worlds_says_to_begin_it_again(
    kept: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.bench.bench.bench", pressed)
    assert "the same `twin bench` command" in call(kept, "bench", "--seeds", "2").err


@pytest.mark.parametrize("when", [("--every", "6h"), ("--cron", "0 3 * * *"), ("--on-drift",)])
def test_each_retraining_of_a_schedule_is_a_line(
    kept: Path, call: Call, when: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = RetrainResult("a-run", None, "ab" * 32, False, "not shown to be better", (), "cd" * 32)

    def twice(*_: Any, tell: Any, show: Any, **__: Any) -> None:
        for _ in range(2):
            tell("next: soon")
            show(found)

    monkeypatch.setattr("replay.training.scheduled_retraining.follow", twice)
    done = call(kept, "retrain", *when, "--json")
    assert [json.loads(line) for line in done.out.splitlines()] == [found.to_json()] * 2
    assert done.err.count("next: soon") == 2
    assert "rejected: not shown to be better" in call(kept, "retrain", *when).out.decode()


@pytest.mark.parametrize("form", ["table", "json", "csv", "parquet", "arrow"])
def test_any_view_is_exported(kept: Path, call: Call, form: str) -> None:
    done = call(kept, "sql", "from decisions", "--format", form)
    starts = {
        "table": b"run ",
        "json": b'[{"run"',
        "csv": b"run,number",
        "parquet": b"PAR1",
        "arrow": b"\xff\xff",
    }
    assert done.code == 0 and done.out.startswith(starts[form])


def test_a_decision_is_told_with_what_was_seen_and_expected(kept: Path, call: Call) -> None:
    shown = call(kept, "audit", STATIC, "--decision", "2").out.decode()
    for words in ("model  none: not a learned policy", "mask   ", "us-east-1 > eu-west-1", "60 s ahead",
                  "the baselines would have done", "what happened until the next"):  # fmt: skip
        assert words in shown, words


def test_the_views_describe_themselves(kept: Path, call: Call) -> None:
    assert b"decisions: one row is a decision" in call(kept, "sql", "describe").out


def test_a_signature_is_made_and_checked(store: Path, tmp_path: Path, call: Call) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private, public = tmp_path / "key.pem", tmp_path / "pub.pem"
    private.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    assert call(store, "audit", STATIC, "--sign", str(private)).code == 0
    assert call(store, "audit", STATIC, "--verify-signature", str(public)).code == 0
    assert call(store, "audit", SINGLE, "--verify-signature", str(public)).code == 1


def test_a_run_altered_with_all_its_hashes_differs_when_it_is_made_again(store: Path, call: Call) -> None:
    reader = RunReader(run_index.folder(store, run_index.find(store, STATIC)))
    events = list(reader.events())
    forged = next(event for event in events if event.type == "iteration_done")
    with RunWriter.create(run_index.folder(store, "forged")) as log:
        for event in events[:-1]:
            more = {"tokens": event.payload["tokens"] + 1} if event is forged else {}
            log.append(event.sim_ns, event.type, {**event.payload, **more}, wall=event.wall)
        log.finish(events[-1].payload["totals"], sim_ns=events[-1].sim_ns)
    for said in (["replay", "--run", "forged"], ["audit", "forged"]):
        for form in ([], ["--json"]):
            done = call(store, *said, *form)
            assert done.code == 3 and f"event {forged.seq}" in done.out.decode().replace(
                '"seq": ', "event "
            ), said


@pytest.mark.parametrize("finished", [True, False])
def test_train_tells_what_it_left(
    kept: Path, call: Call, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    made = TrainingResult(
        "run-1" if finished else None, "ab" * 32, Path("x.pt"), -1.5, 2.0, 3, finished, finished
    )
    monkeypatch.setattr("replay.training.train.train", lambda *_, **__: made)
    for form in ([], ["--json"]):
        done = call(kept, "train", *form)
        assert done.code == (0 if finished else 130) and ("ab" * 32) in done.out.decode()


@pytest.mark.parametrize("promoted", [True, False])
def test_retrain_tells_its_verdict(
    kept: Path, call: Call, monkeypatch: pytest.MonkeyPatch, promoted: bool
) -> None:
    verdict = PairedDifference("tokens", 0.02, 0.01, 0.03)
    made = RetrainResult("run-1", None, "ab" * 32, promoted, "because", (verdict,), "cd" * 32)
    monkeypatch.setattr("replay.training.retrain.retrain", lambda *_, **__: made)
    told = call(kept, "retrain", "--once", "--json").json
    assert told["promoted"] is promoted and told["verdicts"][0]["low"] == 0.01
    assert ("promoted" if promoted else "rejected") in call(kept, "retrain", "--once").out.decode()


def test_rollback_tells_where_it_went(store: Path, call: Call) -> None:
    shipped = checkpoint_registry.stored(store)[-1]
    digest = checkpoint_registry.resolve(store, "hippo", str(shipped))
    assert digest is not None
    checkpoint_registry.promote(store, digest)
    assert call(store, "policies", "--rollback", "--json").json == {
        "schema": "twin.rollback/1", "active": digest, "run": None,
    }  # fmt: skip
    checkpoint_registry.promote(store, digest)
    assert digest in call(store, "policies", "--rollback").out.decode()


def test_an_ingest_that_stores_nothing_of_a_set_fails_and_says_why(tmp_path: Path, call: Call) -> None:
    (tmp_path / "mine").mkdir()
    stamps = "1772323200000,a,b,1\n1772323260000,a,b,1\n"
    (tmp_path / "mine" / "links.csv").write_text("ts,src,dst,bandwidth_bps\n" + stamps)
    shown = call(tmp_path / "store", "ingest", str(tmp_path / "mine"))
    assert shown.code == 1 and b"2" in shown.out
    words = " ".join(shown.err.split())
    assert "mine: nothing was stored, every row was rejected; the first: " in words and 'ts = "ms"' in words
    told = call(tmp_path / "store", "ingest", str(tmp_path / "mine"), "--json")
    assert (told.code, told.json["rejected_sets"]) == (1, ["mine"])
