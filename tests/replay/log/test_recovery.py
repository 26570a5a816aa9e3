"""What recovery takes for a left-over and what for a stranger, and what it reads; crashes: tests/crash."""

from pathlib import Path

import pytest

from ingest.core.errors import DamageError
from replay.log import recovery, segment
from replay.log.recovery import LOCK, recover, unlisted, walk
from replay.log.segment_index import RECORD, SegmentIndex
from tests.support.histories import write

FIRST, SECOND, THIRD = (f"{seq:020d}" for seq in (0, 20, 40))
MERGED, LATER = f"{0:020d}-{39:020d}.parquet", f"{40:020d}-{59:020d}.parquet"
FOREIGN = "notes.txt"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run in many files."""
    run_dir = tmp_path / "runs" / "a"
    write(run_dir, flush_events=20)
    return run_dir


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ({LOCK}, {LOCK, f"{FIRST}.parquet"}, {LOCK}),
        ({f"{FIRST}.json"}, {f"{FIRST}.json", f"{SECOND}.parquet"}, {f"{FIRST}.json"}),
        ({f"{SECOND}.json"}, {f"{FIRST}.json", f"{THIRD}.json"}, {f"{FIRST}.json"}),
        ({f"{FIRST}.json"}, {f"{FIRST}.json", MERGED}, {f"{FIRST}.json"}),
        ({f"{FIRST}.json", MERGED}, {f"{THIRD}.json", MERGED, LATER}, {f"{THIRD}.json", MERGED, LATER}),
        ({MERGED}, {MERGED, RECORD}, {MERGED}),
        ({MERGED, RECORD}, {MERGED, RECORD}, {MERGED, RECORD}),
        ({RECORD}, {f"{FIRST}.json", MERGED, RECORD, FOREIGN}, {f"{FIRST}.json", MERGED, RECORD, FOREIGN}),
        ({LOCK}, {LOCK, FOREIGN}, {LOCK, FOREIGN}),
    ],
)  # fmt: skip
def test_of_the_second_look_what_comes_no_later_than_the_newest_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: set[str], second: set[str], shown: set[str]
) -> None:
    looks = iter((first, second))
    monkeypatch.setattr(recovery, "_look", lambda _: list(next(looks)))
    assert recovery.names(tmp_path) == tuple(sorted(shown))


def merged(first: int, last: int) -> str:
    return f"{first:020d}-{last:020d}.parquet"


def test_of_a_finished_run_merged_files_between_its_segments_are_left_overs(run_dir: Path) -> None:
    found = walk(run_dir)
    firsts = [manifest.first_seq for manifest in found.chain]
    left = [merged(0, firsts[2] - 1), merged(firsts[1], firsts[3] - 1), merged(firsts[1], found.end - 1)]
    foreign = [
        *(merged(firsts[1], firsts[3] + more) for more in (-2, 0)),  # ends in the middle of a segment
        *(merged(firsts[2] + more, firsts[4] - 1) for more in (-1, 1)),  # begins there
        merged(0, found.end),
        f"{found.end:020d}.parquet",  # nothing comes after the end
        FOREIGN,
    ]
    for name in (*left, *foreign):
        (run_dir / name).write_bytes(b"")
    assert unlisted(run_dir, [*left, *foreign, LOCK], found) == (tuple(left), tuple(foreign))


def test_of_a_run_in_growth_the_next_data_file_is_a_left_over_and_no_other(run_dir: Path) -> None:
    whole = walk(run_dir)
    found = SegmentIndex(whole.chain[:2], whole.pieces[:2])
    left = (whole.chain[2].data_name,)
    foreign = (whole.chain[2].name, whole.chain[3].data_name, merged(0, found.end - 1))
    (run_dir / foreign[-1]).write_bytes(b"")
    assert unlisted(run_dir, [*left, *foreign], found) == (left, foreign)


def test_a_left_over_is_a_file(run_dir: Path) -> None:
    name = f".{0:020d}.json.1-0.tmp"
    (run_dir / name).mkdir()
    with pytest.raises(DamageError, match=f"{name}: does not belong to the run"):
        recover(run_dir)


def test_data_files_are_measured_and_not_read(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = max(run_dir.glob("*.parquet"))
    name = f".{0:020d}.json.1-0.tmp"
    (run_dir / name).write_bytes(b"")
    monkeypatch.setattr(segment, "checked", None)
    assert recover(run_dir) == (name,) and not (run_dir / name).exists()
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(DamageError, match=f"{last.name}: .* bytes"):
        recover(run_dir)


def test_a_chain_ends_where_a_run_does(run_dir: Path) -> None:
    chain = walk(run_dir).chain
    behind = segment.SegmentManifest(
        chain[-1].last_seq + 1, chain[-1].last_seq + 1, 1, 1, *["0" * 64] * 3, final=False, walls="0" * 64
    )
    (run_dir / behind.name).write_bytes(behind.text())
    with pytest.raises(DamageError, match=f"{behind.name}: lies behind the end"):
        walk(run_dir)


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_link_that_does_not_follow_names_the_one_before(run_dir: Path, place: int) -> None:
    chain = walk(run_dir).chain
    other = segment.SegmentManifest(**{**chain[place].fields(), "previous": "1" * 64})  # type: ignore[arg-type]
    (run_dir / other.name).write_bytes(other.text())
    before = chain[place - 1].name if place else "the start"
    with pytest.raises(DamageError, match=f"{other.name}: does not follow from {before}:"):
        walk(run_dir)


def test_merged_files_alone_are_of_a_run_that_lost_its_record(tmp_path: Path) -> None:
    assert not walk(tmp_path).chain
    for name in (LATER, MERGED):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DamageError, match=f"{RECORD}: missing, though {MERGED} is there; restore it"):
        walk(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MERGED, LATER]
