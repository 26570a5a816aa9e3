"""Every command that writes takes --dry-run, says what it would do, and writes nothing."""

import hashlib
import shutil
from pathlib import Path

import click
import pytest

import cli
from ingest.core import durable
from replay.inventory.backup import back_up
from replay.inventory.places import Folder
from replay.store import checkpoint_registry, run_index
from tests.support.commands import SINGLE, STATIC, Call, caller

READERS = {
    "offpolicy", "sql", "runs", "status", "verify", "completion", "config", "estimate", "lab",
}  # fmt: skip
"""Commands that only answer; the caches that some of them keep can be made again."""
WILL = "would write {tmp}/"
DRY: dict[str, tuple[list[str], list[str]]] = {
    "ingest": (["ingest", "examples"], [f"{WILL}store/lake (examples: examples/queue.swf, by reader swf"]),
    "fetch": (["fetch", "wanify-aws8"], [f"{WILL}store/fetched/wanify-aws8/"]),
    "traces": (["traces", "synthetic-tri", "--drop"], ["would replace {tmp}/store/lake/committed.json"]),
    "synth": (["synth", "{tmp}/t"], [f"{WILL}t/synthetic-tri/synthetic-tri.csv"]),
    "replay": (["replay", "-p", "static"], [f"{WILL}store/runs/tri-7b-static-", "log of a run of static"]),
    "replay --run": (
        ["replay", "--run", STATIC, "-p", "single", "--until", "900"], [f"{WILL}store/runs/", "what-if"]
    ),
    "bench": (["bench", "-p", "static", "-p", "mpc"], ["log of a run of static", "log of a run of mpc"]),
    "bench --seeds": (["bench", "-p", "static", "--seeds", "3"], ["logs of 3 runs"]),
    "audit": (["audit", SINGLE, "--quarantine"], ["would move {tmp}/store/runs/"]),
    "compact": (["compact", STATIC], ["few files in place of"]),
    "report": (["report", STATIC, "--out", "{tmp}/page.html"], [f"{WILL}page.html ("]),
    "trace": (["trace", STATIC, "--to", "5", "--out", "{tmp}/t.json"], [f"{WILL}t.json"]),
    "tag": (["tag", STATIC, "paper"], [f"{WILL}store/"]),
    "note": (["note", STATIC, "the first"], [f"{WILL}store/"]),
    "rm": (["rm", SINGLE], [SINGLE]),
    "gc": (["gc"], [""]),
    "backup": (["backup", "{tmp}/copy"], [f"{WILL}copy (a copy of"]),
    "restore": (["--store", "{tmp}/new", "restore", "{tmp}/safe"], [f"{WILL}new (the store of"]),
    "sync": (["sync", "{tmp}/store", "{tmp}/copy"], [f"{WILL}copy/runs/", "2 of 2 segments of the run"]),
    "batch": (
        ["batch", "--model", "gpt2-1.5b", "--gpus", "8 x V100", "--batch", "32", "--out", "{tmp}/b.svg"],
        [f"{WILL}b.svg ("],
    ),
    "calibrate": (["calibrate"], [f"{WILL}store/"]),
    "serve": (
        ["serve", "-s", "tri-7b", "-p", "static"], [f"{WILL}store/runs/tri-7b-static-", "log of a service"]
    ),
    "retrain": (["retrain", "--every", "6h"], ["times of retrainings, until Ctrl-C"]),
    "train": (["train", "--algorithm", "toy"], [f"{WILL}store/checkpoints (weights of a training"]),
    "doctor": (["doctor", "--compile"], ["compiled kernels of a first decision"]),
    "profile": (["profile", "{tmp}/measured"], [f"{WILL}measured (layer times"]),
    "init": (
        ["init", "{tmp}/my.yaml", "--dataset", "synthetic-tri", "--no-ask"], [f"{WILL}my.yaml ("]
    ),
    "plan": (["plan", "-s", "tri-7b", "--out", "{tmp}/plan.yaml"], [f"{WILL}plan.yaml ("]),
    "export": (
        ["export", STATIC, "--to", "megatron", "--nearest", "--out", "{tmp}/m"], [f"{WILL}m/arguments.txt ("]
    ),
    "compare": (["compare", STATIC, SINGLE, "--plot", "{tmp}/both.svg"], [f"{WILL}both.svg ("]),
    "policies": (["policies", "--rollback"], ["in use, in place of"]),
    "queue": (["queue", "examples/queue.swf", "-p", "fcfs", "--keep"], [f"{WILL}store/runs/"]),
}  # fmt: skip


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsysbinary, monkeypatch)


def content(folder: Path) -> dict[str, str]:
    """Every file below a folder with the digest of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_command_writes_and_has_a_dry_run_or_only_reads() -> None:
    dry = {
        name
        for name, command in cli.twin.loaded().items()
        if any("--dry-run" in param.opts for param in command.params if isinstance(param, click.Option))
    }
    assert dry | READERS == set(cli.COMMANDS) and not dry & READERS
    assert {name.split()[0] for name in DRY} == dry


@pytest.fixture(scope="module")
def trial(kept_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that all dry runs here share: it stays as it is."""
    folder = tmp_path_factory.mktemp("trial")
    shutil.copytree(kept_store, folder / "store")
    (
        run_index.folder(folder / "store", run_index.find(folder / "store", SINGLE)) / "stranger.txt"
    ).write_text("x")
    digest = checkpoint_registry.resolve(folder / "store", "hippo", None)
    assert digest is not None
    checkpoint_registry.promote(folder / "store", digest)  # else nothing could be rolled back
    back_up(folder / "store", Folder(folder / "safe"))
    return folder


@pytest.mark.parametrize("command", DRY)
def test_a_dry_run_says_what_would_change_and_changes_nothing(trial: Path, call: Call, command: str) -> None:
    words, told = DRY[command]
    before = content(trial)
    done = call(trial / "store", *[word.format(tmp=trial) for word in words], "--dry-run")
    assert done.code == 0, done.err
    assert content(trial) == before
    shown = done.out.decode()
    assert all(part.format(tmp=trial) in shown for part in told), shown
    assert type(durable.DISK) is durable.Disk and not vars(durable.DISK)


def test_programs_get_one_object(trial: Path, call: Call) -> None:
    told = call(trial / "store", "tag", STATIC, "paper", "--dry-run", "--json").json
    (change,) = told["changes"]
    assert (told["schema"], told["command"], change["change"]) == ("twin.dry_run/1", "tag", "write")
    assert call(trial / "store", "tag", STATIC, "--dry-run", "--json").json["changes"] == []


def test_a_mistake_is_one_in_a_dry_run_too(trial: Path, call: Call) -> None:
    assert call(trial / "store", "replay", "-s", "nowhere", "--dry-run").code == 1
    with durable.Lock(run_index.folder(trial / "store", run_index.find(trial / "store", STATIC)) / ".lock"):
        assert call(trial / "store", "compact", STATIC, "--dry-run").code == 4
    assert type(durable.DISK) is durable.Disk
