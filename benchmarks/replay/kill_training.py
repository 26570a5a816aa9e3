"""Kills of `twin train`, `twin retrain --once` and `twin policies --rollback` at random times (group T32).

    python -m benchmarks.replay.kill_training [--kills 30] [--again 5]

The process is ended by SIGKILL somewhere between its start and the time that it takes undisturbed. Then
`twin verify` must find the store whole but for the left-overs of a kill, and the active checkpoint must be
one that was promoted, whole. Every `--again`-th time the command is run once more and must end.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from replay.store import checkpoint_registry
from tests.support.tally import tally

ROOT = Path(__file__).resolve().parents[2]
SHORT = "iterations: 1\nimitation: {lessons: 2, searched: 4, steps: 10}\n"


def start(store: Path, words: list[str]) -> subprocess.Popen[bytes]:
    """A `twin` command that was started."""
    command = [sys.executable, "cli.py", "--store", str(store), *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finished(store: Path, words: list[str]) -> float:
    """Runs a command to its end; returns its seconds."""
    began = time.monotonic()
    if (code := start(store, words).wait()) != 0:
        raise SystemExit(f"{' '.join(words)} ended with {code}")
    return time.monotonic() - began


def checkpoints(store: Path) -> set[str]:
    """Names of the checkpoint files of a store."""
    names = {path.name for path in (store / "checkpoints").iterdir()}
    return names - {checkpoint_registry.POINTER}  # the pointer's copy goes where the pointer goes


def fault(store: Path, before: set[str]) -> str | None:
    """Returns what a kill broke; None: nothing."""
    done = subprocess.run(
        [sys.executable, "cli.py", "--store", str(store), "verify", "--json"], cwd=ROOT, capture_output=True
    )
    if done.returncode != 0:
        return f"verify: {json.loads(done.stdout or '{}').get('findings') or done.stderr[-500:]!r}"
    active = checkpoint_registry.active(store)
    known = checkpoints(store)
    if not before <= known:
        return f"checkpoints are gone: {before - known}"
    if active is not None:
        checkpoint_registry.verified(checkpoint_registry.path_of(store, active))
    return None


@dataclass(frozen=True)
class Campaign:
    """What the kills of one command did."""

    command: str
    takes_s: float  # undisturbed
    kills: int
    under_way: int  # the command had not ended by itself
    violations: list[str]

    def row(self) -> str:
        """The line of the table."""
        cells = (
            f"`{self.command}`",
            f"{self.takes_s:.1f} s",
            self.kills,
            self.under_way,
            len(self.violations),
        )
        return f"| {' | '.join(map(str, cells))} |"


def campaign(kept: Path, words: list[str], kills: int, again: int) -> Campaign:
    """Kills one command so often; returns what that did."""
    chance, bad, under_way = random.Random(" ".join(words)), [], 0
    before = checkpoints(kept)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        shutil.copytree(kept, store)
        takes_s = finished(store, words)
        for number in range(kills):
            shutil.rmtree(store)
            shutil.copytree(kept, store)
            process = start(store, words)
            time.sleep(chance.uniform(0, takes_s))
            process.send_signal(signal.SIGKILL)
            under_way += process.wait() == -signal.SIGKILL
            if (problem := fault(store, before)) is not None:
                bad.append(problem)
            if number % again == 0:
                finished(store, words)
                if (problem := fault(store, before)) is not None:
                    bad.append(f"after running it again: {problem}")
            print(f"{words[0]} {number + 1}/{kills}: {len(bad)} bad", file=sys.stderr)
    return Campaign(f"twin {' '.join(words)}", takes_s, kills, under_way, bad)


def campaigns(kills: int, again: int, only: Iterable[str] = ()) -> Iterator[Campaign]:
    """Kills of `train`, `retrain` and `policies --rollback` in this order, or of `only` some of them."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "store"
        settings = Path(folder) / "short.yaml"
        settings.write_text(SHORT)
        train = ["train", "-s", "tri-7b", "--settings", str(settings), "--activate"]
        finished(kept, ["ingest", "traces"])
        for seed in ("0", "1"):
            finished(kept, [*train, "--seed", seed])
        commands = (
            [*train, "--seed", "2"],
            ["retrain", "--once", "-s", "tri-7b"],
            ["policies", "--rollback"],
        )
        for words in commands:
            if not only or words[0] in only:
                done = campaign(kept, words, kills, again)
                yield replace(done, command=done.command.replace(str(settings), "SETTINGS"))


def test_no_kill_loses_or_half_promotes_a_checkpoint() -> None:
    for done in campaigns(kills=6 * int(os.environ.get("TWIN_CRASH_EFFORT", "5")), again=5):
        assert not done.violations
        tally(done.command, done.kills)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--again", type=int, default=5)
    parser.add_argument("--only", choices=("train", "retrain", "policies"), action="append")
    given = parser.parse_args()
    print("| command | takes | kills | of them under way | violations |\n|---|---:|---:|---:|---:|")
    for done in campaigns(given.kills, given.again, given.only or ()):
        print(done.row(), flush=True)
        for problem in done.violations:
            print(problem, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
