"""Verification: checks every byte of a run's directory and names the file of each deviation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ingest.core.errors import DamageError
from replay.log import chain_heads, recovery, segment, segment_index
from replay.log.running_digests import Streams
from replay.log.segment import COMMITTED, GENESIS, FileDamageError, SegmentManifest
from replay.log.segment_index import MERGED, RECORD, SegmentIndex
from replay.log.tail import NAME as TAIL


@dataclass(frozen=True, slots=True)
class IntegrityFinding:
    """One deviation: the file (a name in the run's directory) and the problem."""

    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def verify(run_dir: Path, chain_head: str | None = None, *, since: int = 0) -> list[IntegrityFinding]:
    """Lists every deviation from what was written; empty: intact. Left-overs of a crash are no damage.

    Checks each manifest, link, size and digest, each event's number, time, type and form, and the digest of
    the stream. `chain_head`, if kept elsewhere, must be a link of the chain: this detects a cut tail and a
    history that was rewritten with all its hashes. With `since` the data files that end before that event
    are not read, and the digest of the stream, which needs them all, is not computed.
    """
    try:
        present = recovery.names(run_dir)
    except OSError as error:
        return [IntegrityFinding(".", f"cannot be listed ({error.strerror})")]
    if RECORD in present:
        found, findings = _compacted(run_dir)
    else:
        found, findings = _written(run_dir, present)
    if findings:
        findings += _unknown_names(present)
    else:
        foreign = recovery.unlisted(run_dir, present, found)[1]
        findings += [IntegrityFinding(name, "does not belong to the run; move it away") for name in foreign]
    findings += check_events(run_dir, found, whole=not findings, since=since)
    if not findings:
        findings += _end(run_dir, found)
    if chain_head is not None and chain_head not in {manifest.hash for manifest in found.chain}:
        last = found.chain[-1].name if found.chain else "."
        findings.append(
            IntegrityFinding(
                last, f"the chain does not hold {chain_head}: the end was cut or the past rewritten"
            )
        )
    if findings and RECORD not in present and (run_dir / RECORD).exists():
        return verify(run_dir, chain_head, since=since)  # compacted meanwhile
    return findings


def _compacted(run_dir: Path) -> tuple[SegmentIndex, list[IntegrityFinding]]:
    try:
        found = segment_index.read_record(run_dir)
    except FileDamageError as error:
        return SegmentIndex((), ()), [IntegrityFinding(error.file, error.problem)]
    if found is None:
        return SegmentIndex((), ()), [IntegrityFinding(RECORD, "went away while it was read")]
    return found, []


def _written(run_dir: Path, present: Sequence[str]) -> tuple[SegmentIndex, list[IntegrityFinding]]:
    chain, findings = _chain(run_dir, [name for name in present if recovery.is_manifest(name)])
    tail = None
    if not findings and not (chain and chain[-1].final):
        try:
            tail = recovery.live_tail(run_dir, chain)
        except FileDamageError as error:
            findings.append(IntegrityFinding(error.file, error.problem))
    found = segment_index.of_chain(chain, tail)
    behind = recovery.tail_behind(present, found.sealed)
    merged = [name for name in present if MERGED.fullmatch(name)]
    if behind and not found.final and not findings:
        findings.append(IntegrityFinding(f"{found.sealed:020d}.json", f"missing, though {behind} is there"))
    if not found.end and not findings and merged:
        findings.append(IntegrityFinding(RECORD, f"missing, though {merged[0]} is there"))
    elif not found.end and not findings:
        findings.append(IntegrityFinding(".", "holds no committed segment"))
    return found, findings


def _end(run_dir: Path, found: SegmentIndex) -> list[IntegrityFinding]:
    """Lists the fault of a chain that does not hold the head at which the writer was closed."""
    try:
        head = chain_heads.read(run_dir)
    except DamageError as error:
        return [IntegrityFinding(f"../../{chain_heads.FOLDER}/{run_dir.name}.json", str(error))]
    problem = None if head is None else head.fault(found)
    return [] if problem is None else [IntegrityFinding(f"{found.end:020d}.json", problem)]


def _unknown_names(present: Sequence[str]) -> list[IntegrityFinding]:
    """Lists names that no run has, where a broken chain does not tell which segments belong."""
    return [
        IntegrityFinding(name, "does not belong to the run; move it away")
        for name in present
        if name != recovery.LOCK
        and not any(known.fullmatch(name) for known in (COMMITTED, MERGED, TAIL, recovery.LEFT_OVER))
    ]


def _chain(run_dir: Path, names: Sequence[str]) -> tuple[list[SegmentManifest], list[IntegrityFinding]]:
    """Returns all readable manifests in order, and the faults of each and between two."""
    chain: list[SegmentManifest] = []
    findings: list[IntegrityFinding] = []
    before: SegmentManifest | None = None
    trusted = True  # the next manifest must follow `before` (None: the start)
    for name in names:
        try:
            manifest = segment.read_manifest(run_dir / name)
        except FileDamageError as error:
            findings.append(IntegrityFinding(error.file, error.problem))
            trusted = False
            continue
        except FileNotFoundError:  # removed since the listing
            findings.append(IntegrityFinding(name, "went away while it was read"))
            trusted = False
            continue
        if trusted:
            findings += _link(before, manifest)
        chain.append(manifest)
        before, trusted = manifest, True
    return chain, findings


def _link(before: SegmentManifest | None, manifest: SegmentManifest) -> list[IntegrityFinding]:
    first = before.last_seq + 1 if before else 0
    origin = before.name if before else "the start"
    if before and before.final:
        return [IntegrityFinding(manifest.name, f"lies behind the end of the run, which is in {origin}")]
    if manifest.first_seq > first:
        return [
            IntegrityFinding(
                f"{first:020d}.json", f"missing: {manifest.name} is the next one there after {origin}"
            )
        ]
    if manifest.first_seq < first or manifest.previous != (before.hash if before else GENESIS):
        why = "one of them was changed or swapped, or is of another run"
        return [IntegrityFinding(manifest.name, f"does not follow from {origin}: {why}")]
    return []


def check_events(
    run_dir: Path, found: SegmentIndex, *, whole: bool = True, since: int = 0
) -> list[IntegrityFinding]:
    """Lists the faults inside the data files; digests of the stream are compared if the chain is `whole`."""
    findings: list[IntegrityFinding] = []
    digests = Streams() if whole and since == 0 else None
    ends = [manifest.last_seq for manifest in found.chain]
    last_ns = 0
    for piece in found.pieces:
        if piece.last_seq < since:
            continue
        try:
            table = segment.read_rows(run_dir, piece)
        except FileDamageError as error:
            findings.append(IntegrityFinding(error.file, error.problem))
            digests = None
            continue
        findings += _faults(table, piece.data_name, last_ns)
        last_ns = table.column("sim_ns")[-1].as_py()
        if digests is None:
            continue
        inside = slice(*np.searchsorted(ends, [piece.first_seq, piece.last_seq + 1]))
        for manifest in found.chain[inside]:
            digests.add_table(table.slice(manifest.first_seq - piece.first_seq, manifest.rows))
            if not _agrees(digests, manifest):
                voucher = piece.voucher
                findings.append(
                    IntegrityFinding(voucher, "the events up to here are not those that it was written over")
                )
                digests = None
                break
    if found.tail and found.end > since:
        table = found.tail.table
        findings += _faults(table, found.tail.name, last_ns)
        if digests is not None:
            digests.add_table(table)
            if digests.stream != found.tail.stream:
                problem = "the events up to its end are not those that it was written over"
                findings.append(IntegrityFinding(found.tail.name, problem))
    return findings


def _faults(table: pa.Table, name: str, last_ns: int) -> list[IntegrityFinding]:
    """Lists the events of one file that no writer would have accepted, or whose time runs backward."""
    from replay.log.event_validation import faults  # imports numba, which takes a second

    return [
        IntegrityFinding(name, f"event {seq}: {problem}")
        for seq, problem in sorted([*_backward(table, last_ns), *faults(table, name)])
    ]


def _agrees(digests: Streams, manifest: SegmentManifest) -> bool:
    return digests.stream == manifest.stream and manifest.walls in (None, digests.walls)


def _backward(table: pa.Table, last_ns: int) -> list[tuple[int, str]]:
    """Lists (number, problem) of events whose time is before that of the event before them."""
    times = np.concatenate([[last_ns], table.column("sim_ns").to_numpy()])
    first = table.column("seq")[0].as_py()
    return [
        (first + int(n), f"its time {times[n + 1]} ns lies before that of the event before ({times[n]} ns)")
        for n in np.flatnonzero(np.diff(times) < 0)
    ]
