"""Checks every byte of a run's directory against what was written, and names the file of each deviation."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ingest.errors import DamageError
from replay import recovery, segment
from replay.events import EventError, canonical, check, line, upcast
from replay.segment import COMMITTED, GENESIS, FileDamageError, Manifest, Row


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: the file (a name in the run's directory) and what is wrong with it."""

    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def verify(run_dir: Path, chain_head: str | None = None) -> list[Finding]:
    """Every deviation from what was written; empty = intact. Left-overs of a crash are no damage.

    Checks each manifest, link, size and digest, each event's number, time, type and form, and the digest of
    the stream. `chain_head`, if kept elsewhere, must be a link of the chain: this detects a cut tail and a
    history that was rewritten with all its hashes.
    """
    try:
        present = recovery.names(run_dir)
    except OSError as error:
        return [Finding(".", f"cannot be listed ({error.strerror})")]
    chain, findings = _chain(run_dir, [name for name in present if _is_manifest(name)])
    if not chain and not findings:
        findings.append(Finding(".", "holds no committed segment"))
    if not findings:
        foreign = recovery.strangers(run_dir, present, chain)[1]
        findings += [Finding(name, "does not belong to the run; move it away") for name in foreign]
    else:
        findings += _unknown_names(present)
    findings += _contents(run_dir, chain, whole=not findings)
    if chain_head is not None and chain_head not in {manifest.hash for manifest in chain}:
        last = chain[-1].name if chain else "."
        findings.append(
            Finding(last, f"the chain does not hold {chain_head}: the end was cut or the past rewritten")
        )
    return findings


def _is_manifest(name: str) -> bool:
    return COMMITTED.fullmatch(name) is not None and name.endswith(".json")


def _unknown_names(present: Sequence[str]) -> list[Finding]:
    """Names that no run has; used where a broken chain cannot say which segments belong."""
    return [
        Finding(name, "does not belong to the run; move it away")
        for name in present
        if name != recovery.LOCK and not COMMITTED.fullmatch(name) and not recovery.LEFT_OVER.fullmatch(name)
    ]


def _chain(run_dir: Path, names: Sequence[str]) -> tuple[list[Manifest], list[Finding]]:
    """All readable manifests in order, and what is wrong with each or between two."""
    chain: list[Manifest] = []
    findings: list[Finding] = []
    before: Manifest | None = None
    trusted = True  # whether `before` (None: the start) is what the next one must follow
    for name in names:
        try:
            manifest = segment.read_manifest(run_dir / name)
        except FileDamageError as error:
            findings.append(Finding(error.file, error.problem))
            trusted = False
            continue
        if trusted:
            findings += _link(before, manifest)
        chain.append(manifest)
        before, trusted = manifest, True
    return chain, findings


def _link(before: Manifest | None, manifest: Manifest) -> list[Finding]:
    first = before.last_seq + 1 if before else 0
    origin = before.name if before else "the start"
    if before and before.final:
        return [Finding(manifest.name, f"lies behind the end of the run, which is in {origin}")]
    if manifest.first_seq > first:
        return [
            Finding(f"{first:020d}.json", f"missing: {manifest.name} is the next one there after {origin}")
        ]
    if manifest.first_seq < first or manifest.previous != (before.hash if before else GENESIS):
        why = "one of them was changed or swapped, or is of another run"
        return [Finding(manifest.name, f"does not follow from {origin}: {why}")]
    return []


class _Place(NamedTuple):
    """Where in the log an event was read."""

    file: str
    last_ns: int


def _contents(run_dir: Path, chain: Sequence[Manifest], *, whole: bool) -> list[Finding]:
    """What is wrong inside the segments; the digest of the stream is compared while the chain is `whole`."""
    findings: list[Finding] = []
    total = hashlib.sha256()
    last_ns = 0
    for manifest in chain:
        try:
            table = segment.read_rows(run_dir, manifest)
        except FileDamageError as error:
            findings.append(Finding(error.file, error.problem))
            whole = False
            continue
        for row in segment.rows_of(table):
            total.update(line(*row[:6]))
            problem = _event_problem(row, _Place(manifest.data_name, last_ns))
            if problem:
                findings.append(Finding(manifest.data_name, f"event {row[0]}: {problem}"))
            last_ns = row[1]
        if whole and total.hexdigest() != manifest.stream:
            findings.append(
                Finding(manifest.name, "the events up to here are not those that it was written over")
            )
            whole = False
    return findings


def _event_problem(row: Row, place: _Place) -> str | None:
    """Why the stored event is none that a writer would have accepted."""
    _, sim_ns, name, version, _, text, wall = row
    if sim_ns < place.last_ns:
        return f"its time {sim_ns} ns lies before that of the event before ({place.last_ns} ns)"
    try:
        payload = json.loads(text)
        if canonical(payload) != text or canonical(json.loads(wall)) != wall:
            return "the payload is not in its canonical form"
        check(name, upcast(name, version, payload, place.file)[1])
    except (ValueError, RecursionError, EventError, DamageError) as error:
        return str(error)
    return None
