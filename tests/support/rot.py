"""A store with every kind of stored file, six ways to harm one, and what is said of it afterwards.

`python -m tests.support.rot 100` prints the table of outcomes with so many trials a cell.
"""

import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ingest.core import integrity
from ingest.core.errors import TwinError
from ingest.lake import lake
from ingest.pipeline.ingest import ingest
from replay.api import store_check
from replay.audit import audit, signing
from replay.log.compaction import compact
from replay.log.run_log import RunReader
from replay.sql import row_cache
from replay.sql.query import query
from replay.store import checkpoint_registry
from replay.training import schedule
from tests.support.histories import write
from tests.support.toys import toy_checkpoint
from twin.calibration import calibration
from twin.calibration.calibration import Calibration
from twin.calibration.least_squares import Fit
from twin.scenario import prepare

TRACES = Path(__file__).resolve().parents[2] / "traces"
RUN, MERGED = "runs/a", "runs/b"
KINDS: dict[str, str] = {
    "lake part": "lake/*/*/*.parquet",
    "lake manifest": "lake/manifests/*.json",
    "lake index": "lake/committed.json",
    "segment": f"{RUN}/*.parquet",
    "segment manifest": f"{RUN}/*.json",
    "merged segments": f"{MERGED}/*.parquet",
    "compacted record": f"{MERGED}/compacted.json",
    "chain head": "heads/*.json",
    "signature": "signatures/*.json",
    "checkpoint": "checkpoints/*/hippo-*.pt",
    "active pointer": "active.json",
    "pointer's copy": "checkpoints/active.json",
    "calibration": "calibrations/*.json",
    "calibration in use": "calibration.json",
    "row cache": "cache/*/*.parquet",
    "verified state": "cache/verified.json",
    "schedule": "schedule.json",
}
"""Every kind of stored file, as a pattern of names in a store."""
OUTCOMES = ("found", "harmless", "WRONG", "traceback")
VIEWS = ("events", "decisions", "iterations", "links", "runs", "link_samples")


def flip(path: Path, chance: random.Random) -> None:
    """Turn one bit."""
    data = bytearray(path.read_bytes())
    place = chance.randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)


def truncate(path: Path, chance: random.Random) -> None:
    """Cut the end off."""
    os.truncate(path, chance.randrange(path.stat().st_size))


def empty(path: Path, chance: random.Random) -> None:
    """Leave nothing in it."""
    os.truncate(path, 0)


def delete(path: Path, chance: random.Random) -> None:
    """Take it away."""
    path.unlink()


def directory(path: Path, chance: random.Random) -> None:
    """Put a directory in its place."""
    path.unlink()
    path.mkdir()


def link(path: Path, chance: random.Random) -> None:
    """Put a symbolic link in its place: to the file itself, or to nothing."""
    if chance.random() < 0.5:
        path.unlink()
        path.symlink_to("/nowhere/at/all")
        return
    store = next(folder for folder in path.parents if folder.name == "store")
    path.symlink_to(path.replace(store.with_name("elsewhere")))


HARMS: dict[str, Callable[[Path, random.Random], None]] = {
    harm.__name__: harm for harm in (flip, truncate, empty, delete, directory, link)
}


@dataclass
class Rot:
    """The store, whole in `kept` and harmed in `store`, and the answers of the whole one."""

    kept: Path
    store: Path
    keys: Path
    expected: dict[str, Any]

    @classmethod
    def made(cls, folder: Path) -> "Rot":
        """Makes the store in `folder`; rows of its runs are cached whatever their size."""
        row_cache.LEAST_EVENTS = 100
        store, kept, keys = folder / "store", folder / "kept", folder / "keys"
        keys.mkdir()
        key = Ed25519PrivateKey.generate()
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        (keys / "private").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        public = serialization.PublicFormat.SubjectPublicKeyInfo
        (keys / "public").write_bytes(key.public_key().public_bytes(pem, public))
        for name in ("synthetic-tri", "synthetic-gpu"):
            ingest([TRACES / name], store)
        write(store / RUN, flush_events=50)
        write(store / MERGED, policy="static", flush_events=50)
        compact(store / MERGED, piece_events=120)
        signing.sign(store, "a", keys / "private")
        for kind in ("mpc", "static"):
            checkpoint_registry.promote(store, toy_checkpoint(store / "checkpoints", kind))
        for factor in (0.5, 0.6):
            fit = Fit({"efficiency": factor, "start_s": 1e-5}, 9, 0.5, 0.1)
            Calibration("ab" * 32, {"H200": {"product": fit}}, {}).save(store)
        rot = cls(kept, store, keys, {})
        rot.expected = rot.answers()
        rot.expected = rot.answers()  # from cached rows
        shutil.copytree(store, kept)
        return rot

    def files(self, kind: str) -> list[Path]:
        """The files of a kind, in the store."""
        return [self.store / path.relative_to(self.kept) for path in sorted(self.kept.glob(KINDS[kind]))]

    def trial(self, kind: str, harm: str, number: int) -> tuple[str, str]:
        """Harms one file of a fresh copy; returns the outcome and the answer that is behind it."""
        chance = random.Random(f"{kind} {harm} {number}")
        shutil.rmtree(self.store)
        shutil.copytree(self.kept, self.store)
        files = self.files(kind)
        path = files[number % len(files)]
        before = path.stat()
        HARMS[harm](path, chance)
        if path.is_file():
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        integrity._checked.clear()  # another process
        fresh = kind == "schedule" and not os.path.lexists(path)
        return self.judge(self.answers(world=kind.startswith("lake")), path, fresh)

    @staticmethod
    def tries(kind_files: int, harm: str, wanted: int) -> int:
        """How many trials of a harm differ from each other, up to `wanted`."""
        ways = {"flip": wanted, "truncate": wanted, "link": 4 * kind_files}
        return min(wanted, ways.get(harm, kind_files))

    def judge(self, answers: dict[str, Any], path: Path, fresh_schedule: bool) -> tuple[str, str]:
        """Compares answers with those of the whole store; a schedule that is not there begins anew.

        An error must name the harmed file in one answer at least.
        """
        worst = "harmless", ""
        for name, answer in answers.items():
            if isinstance(answer, TwinError):
                outcome = "found"
            elif isinstance(answer, Exception):
                outcome = "traceback"
            elif answer == self.expected[name] or (name == "schedule" and fresh_schedule):
                outcome = "harmless"
            else:
                outcome = "WRONG"
            rank = ("harmless", "found", "WRONG", "traceback")
            if rank.index(outcome) > rank.index(worst[0]):
                worst = outcome, f"{name}: {answer!r}"
        errors = [str(answer) for answer in answers.values() if isinstance(answer, TwinError)]
        if worst[0] == "found" and not any(path.stem.removeprefix("hippo-") in text for text in errors):
            return "WRONG", f"{path.name} is not named: {errors[0]}"
        return worst

    def answers(self, world: bool = True) -> dict[str, Any]:
        """What each question is answered with, or its error; `world`: of a scenario too."""
        found: dict[str, Any] = {}
        for name, ask in self._asks():
            if name == "world" and not world:
                continue
            try:
                found[name] = ask()
            except Exception as error:  # noqa: BLE001 - any but ours is an outcome: a traceback
                found[name] = error
        return found

    def _asks(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        store = self.store
        sums = ", ".join(f"(SELECT bit_xor(hash(v)) FROM {view} v) AS {view}" for view in VIEWS)
        yield "sql", lambda: query(store, f"SELECT {sums}").to_pylist()
        for run in (RUN, MERGED):
            yield f"digest {run}", lambda run=run: RunReader(store / run).digest()
            yield (
                f"audit {run}",
                lambda run=run: _raised(audit.audit(store, Path(run).name, since=1).findings),
            )
        yield "signature", lambda: signing.verified(store, "a", self.keys / "public").chain_head
        yield "world", lambda: prepare.prepare(prepare.load("tri-7b"), store).trace_digest
        yield "data sets", lambda: {name: info.rows for name, info in lake.datasets(store).items()}
        yield "constants", lambda: [calibration.find(store, which).digest for which in self._calibrations()]
        yield "checkpoint", lambda: (checkpoint_registry.in_use(store), checkpoint_registry.previous(store))
        yield "schedule", self._due
        yield "verify", lambda: _raised(store_check.check(store).findings)

    def _calibrations(self) -> list[str]:
        named = (self.kept if self.kept.exists() else self.store) / "calibrations"
        return ["latest", *(path.stem for path in sorted(named.glob("*.json")))]

    def _due(self) -> Any:
        made = schedule.scheduler(self.store, schedule.every("6h"), scenario="tri-7b")
        job = made.get_job(schedule.JOB)
        made.shutdown()
        return job.next_run_time, job.args, str(job.trigger)


def _raised(findings: tuple[object, ...]) -> str:
    """Findings of a check are an error that names them."""
    if findings:
        raise TwinError("; ".join(map(str, findings)))
    return "clean"


def main() -> None:
    """Print the table."""
    tries = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        rot = Rot.made(Path(folder))
        print(f"| stored kind | {' | '.join(HARMS)} |\n|---|{'---|' * len(HARMS)}")
        total: Counter[str] = Counter()
        for kind in KINDS:
            cells = []
            for harm in HARMS:
                count = rot.tries(len(rot.files(kind)), harm, tries)
                trials = [rot.trial(kind, harm, number) for number in range(count)]
                bad = [said for outcome, said in trials if outcome in ("WRONG", "traceback")]
                print(*bad[:3], sep="\n", file=sys.stderr, end="\n" if bad else "")
                counts = Counter(outcome for outcome, _ in trials)
                total += counts
                cells.append(", ".join(f"{counts[one]} {one}" for one in OUTCOMES if counts[one]))
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)
        print(f"\n{total.total()} harms: {dict(total)}")


if __name__ == "__main__":
    main()
