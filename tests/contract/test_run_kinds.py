"""Every command that takes a run, with a run of every kind: an answer, or plainly why there is none."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Call, caller
from tests.support.run_kinds import KINDS, fill
from tests.support.toys import without_lake

WORDS: dict[str, list[str]] = {
    "audit": ["audit", "RUN"],
    "audit --decision": ["audit", "RUN", "--decision", "1"],
    "audit --job": ["audit", "RUN", "--job", "9"],
    "audit --quarantine": ["audit", "RUN", "--quarantine", "--dry-run"],
    "compact": ["compact", "RUN"],
    "report": ["report", "RUN"],
    "report --compare": ["report", "RUN", "--compare"],
    "report --vs": ["report", "RUN", "--vs", "OTHER"],
    "report of two": ["report", "RUN", "OTHER"],
    "trace": ["trace", "RUN", "--out", "{tmp}/trace.json"],
    "compare": ["compare", "RUN", "OTHER"],
    "compare --plot": ["compare", "RUN", "OTHER", "--plot", "{tmp}/plot.svg"],
    "tag": ["tag", "RUN", "paper"],
    "note": ["note", "RUN", "seen"],
    "rm": ["rm", "RUN", "--dry-run"],
    "replay --run": ["replay", "--run", "RUN"],
    "replay --run --policy": ["replay", "--run", "RUN", "--policy", "mpc"],
    "replay --run --policy of a queue": ["replay", "--run", "RUN", "--policy", "saf"],
    "replay --run --from-decision": ["replay", "--run", "RUN", "--policy", "mpc", "--from-decision", "2"],
    "replay --run --link": ["replay", "--run", "RUN", "--link", "d0 > * = 0.5"],
    "replay --run --until": ["replay", "--run", "RUN", "--until", "100"],
    "replay --resume": ["replay", "--resume", "RUN"],
    "offpolicy": ["offpolicy", "RUN", "--policy", "single"],
    "train --lessons": ["train", "--lessons", "RUN", "--algorithm", "toy", "--dry-run"],
    "export": ["export", "RUN", "--to", "torchrun", "--nearest", "--out", "{tmp}/job"],
    "export --decision": [
        "export",
        "RUN",
        "--to",
        "torchrun",
        "--decision",
        "1",
        "--nearest",
        "--out",
        "{tmp}/job",
    ],
    "export to a tracker": ["export", "RUN", "--to", "tensorboard", "--out", "{tmp}/tracked"],
    "sync": ["sync", "{store}", "{tmp}/other", "--run", "RUN"],
}
"""Words of each command; OTHER is a run of another kind or the same."""
PAIRED = [name for name, words in WORDS.items() if "OTHER" in words]
OTHERS = ("replay", "what-if of links", "queue on a pool", "queue on nodes", "bench", "training")
LINES = 4
"""Lines of a message at most."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("kinds")
    return folder / "store", fill(folder / "store", folder)


@pytest.fixture
def copy(
    runs: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy of the store, in which commands may write; toy worlds are prepared without a lake."""
    without_lake(monkeypatch)
    shutil.copytree(runs[0], tmp_path / "store")
    yield tmp_path / "store", runs[1]


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsysbinary, monkeypatch)


def answers(
    call: Call, copy: tuple[Path, dict[str, str]], tmp_path: Path, command: str, other: str = ""
) -> None:
    """Calls the command with a run of each kind, and fails with all that went wrong."""
    store, found = copy
    failed = []
    for kind in KINDS:
        if other and found[kind] == found[other]:
            continue
        try:
            answered(call, store, tmp_path, command, found[kind], found[other] if other else "")
        except Exception as error:  # noqa: BLE001 - all kinds are tried, then all failures are named
            failed.append(f"{kind}: {type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)


def answered(call: Call, store: Path, tmp_path: Path, command: str, run: str, other: str = "") -> None:
    """Calls the command; fails unless it answers or says plainly why it does not."""
    words = [
        {"RUN": run, "OTHER": other}.get(word) or word.format(tmp=tmp_path, store=store)
        for word in WORDS[command]
    ]
    done = call(store, *words)
    said = f"{' '.join(words)}: exit {done.code}\n{done.out.decode()[-2000:]}\n{done.err[-2000:]}"
    assert done.code in (0, 1, 2, 3), said
    if done.code in (1, 2):
        message = done.err.strip().splitlines()
        assert done.err.startswith("twin: ") and len(message) <= LINES, said
        named = run in done.err or other in done.err if other else run in done.err
        assert named or "unknown policy" in done.err or "--" in done.err, said
        assert not any(word in done.err for word in ("KeyError", "Error(", "None")), said
    if done.code == 3:
        assert command.startswith(("audit", "replay --run")), said


@pytest.mark.parametrize("command", [name for name in WORDS if name not in PAIRED])
def test_every_command_answers_for_every_kind_of_run(
    copy: tuple[Path, dict[str, str]], tmp_path: Path, call: Call, command: str
) -> None:
    answers(call, copy, tmp_path, command)


@pytest.mark.parametrize("command", PAIRED)
@pytest.mark.parametrize("other", OTHERS)
def test_every_command_on_two_runs_answers_for_every_pair_of_kinds(
    copy: tuple[Path, dict[str, str]], tmp_path: Path, call: Call, command: str, other: str
) -> None:
    answers(call, copy, tmp_path, command, other)


def test_the_list_shows_the_figures_of_each_kind(copy: tuple[Path, dict[str, str]], call: Call) -> None:
    store, found = copy
    listed = call(store, "runs", "--json").json["runs"]
    rows = {row["run"]: row for row in listed}
    for kind, run in found.items():
        row = rows[run]
        if kind.startswith(("queue", "what-if of a queue")):
            assert row["scheduler"] and row["avg_wait_s"] > 0 and row["jobs"] > 100, kind
            assert row["tokens"] is None, kind
        elif row["finished"] and not row["kind"].startswith("log of"):
            assert row["tokens"] > 0 and row["avg_wait_s"] is None and row["scheduler"] is None, kind
    text = call(store, "runs").out.decode()
    policies, queues, records = text.split("\n\n")
    assert "us/token" in policies and "scheduler" not in policies and found["replay"] in policies
    assert "mean wait" in queues and "us/token" not in queues and found["queue on a pool"] in queues
    assert " -  " not in queues, "no column is empty"
    assert "us/token" not in records and found["training"] in records
    few = call(store, "runs", "--where", "scheduler = 'easy' and avg_wait_s > 60", "--json").json["runs"]
    assert found["queue on a pool"] in {row["run"] for row in few}


WHAT_IFS = {
    "what-if of a policy": "policy greedy in place of static",
    "what-if of links": "d0 &lt;&gt; *: bandwidth x 0.1",
    "what-if from a decision": "policy greedy in place of static, from decision 3 on",
    "what-if until a time": "policy greedy in place of static, up to 300 s",
    "what-if of a what-if": "policy single in place of greedy",
}
"""What the title of the page of each says."""


@pytest.mark.parametrize("kind", WHAT_IFS)
def test_the_page_of_a_what_if_says_what_was_changed_and_its_commands_fill_its_cards(
    copy: tuple[Path, dict[str, str]], call: Call, kind: str
) -> None:
    store, found = copy
    page = Path(call(store, "report", found[kind], "--json").json["path"])
    text = page.read_text(encoding="utf-8")
    assert f"<h1>What if in toy-3: {WHAT_IFS[kind]}</h1>" in text
    assert f"<title>What if in toy-3: {WHAT_IFS[kind]} ({found[kind]})</title>" in text
    parent = found["what-if of a policy" if kind == "what-if of a what-if" else "replay"]
    assert f'<b>A what-if</b> of <span class="mono">{parent}</span>. Changed: ' in text
    assert "Compared with its parent</h2>" in text and "its parent (" in text
    sentence = text[text.index('<p class="sentence">') :][:200]
    assert "The change " in sentence
    commands = re.findall(r"<code>twin (.*?)</code>", text)
    assert commands[-1] == f"report {found[kind]} --compare"
    for words in commands:
        done = call(store, *words.split())
        assert done.code == 0, done.err
    assert "<code>" not in page.read_text(encoding="utf-8"), "every card is filled"


def test_the_page_of_a_what_if_of_a_queue_compares_it_with_its_parent(
    copy: tuple[Path, dict[str, str]], call: Call
) -> None:
    store, found = copy
    run = found["what-if of a queue"]
    text = Path(call(store, "report", run, "--json").json["path"]).read_text(encoding="utf-8")
    assert "<h1>What if in queue: scheduler easy-sjbf in place of easy</h1>" in text
    assert found["queue on a pool"] in text and "Compared with its parent</h2>" in text
    assert "under easy (" in text or "under easy-sjbf (" in text


def test_a_what_if_whose_parent_was_removed_says_so(copy: tuple[Path, dict[str, str]], call: Call) -> None:
    store, found = copy
    call(store, "rm", found["replay"], found["queue on a pool"], "--yes")
    text = Path(call(store, "report", found["what-if of links"], "--json").json["path"]).read_text("utf-8")
    assert "That run is not in this store, or not finished" in text and "What if in toy-3: " in text
    queue = Path(call(store, "report", found["what-if of a queue"], "--json").json["path"]).read_text("utf-8")
    assert "What if in queue: scheduler easy-sjbf" in queue and "Compared with its parent" not in queue
