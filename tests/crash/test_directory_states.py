"""Every state that hands can bring a run's directory into: each is found, with a message of its own."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.core.errors import DamageError, LockedError, NotFoundError, StorageError
from replay.log import segment
from replay.log.run_log import IntegrityFinding, RunReader, RunWriter, recover
from replay.log.running_digests import Streams
from tests.support import crash_workload as workload

EVENTS, PER_FLUSH = 48, 5


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("states") / "run"
    _, head = workload.write(folder, EVENTS, PER_FLUSH)
    assert len(RunReader(folder).manifests()) == 11
    return folder, head


@pytest.fixture
def run(finished: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    run_dir = tmp_path / "open"
    with RunWriter.create(run_dir, flush_events=1) as writer:
        for number in range(9):
            writer.append(*workload.event(number))
    return run_dir


def manifests(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("*.json"))


def segments(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("*.parquet"))


def verdict(run_dir: Path) -> dict[str, str]:
    return {finding.file: finding.problem for finding in RunReader(run_dir).verify()}


def assert_unreadable(run_dir: Path) -> None:
    with pytest.raises(DamageError):
        list(RunReader(run_dir).events())
    with pytest.raises(DamageError):
        recover(run_dir)


def swap(a: Path, b: Path) -> None:
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


@pytest.mark.parametrize("number", range(10))
def test_a_deleted_segment(run: Path, number: int) -> None:
    path = segments(run)[number]
    path.unlink()
    assert "missing, though its manifest" in verdict(run)[path.name]
    assert_unreadable(run)


@pytest.mark.parametrize("number", range(10))
def test_a_deleted_manifest(run: Path, number: int) -> None:
    path = manifests(run)[number]
    path.unlink()
    assert verdict(run)[path.name].startswith("missing: ")
    assert_unreadable(run)


@pytest.mark.parametrize("pair", [(a, b) for a in range(10) for b in range(a)])
def test_two_swapped_segments(run: Path, pair: tuple[int, int]) -> None:
    a, b = (segments(run)[n] for n in pair)
    swap(a, b)
    assert {a.name, b.name} <= set(verdict(run))
    with pytest.raises(DamageError):
        list(RunReader(run).events())


@pytest.mark.parametrize("pair", [(a, b) for a in range(10) for b in range(a)])
def test_two_swapped_manifests(run: Path, pair: tuple[int, int]) -> None:
    a, b = (manifests(run)[n] for n in pair)
    swap(a, b)
    assert {a.name, b.name} <= set(verdict(run))
    assert_unreadable(run)


@pytest.mark.parametrize("number", range(10))
def test_a_duplicated_segment(run: Path, number: int) -> None:
    copy = run / f"{EVENTS + 100:020d}"
    shutil.copy(segments(run)[number], copy.with_suffix(".parquet"))
    assert "does not belong" in verdict(run)[f"{copy.name}.parquet"]
    shutil.copy(manifests(run)[number], copy.with_suffix(".json"))
    assert "not a manifest that was written under this name" in verdict(run)[f"{copy.name}.json"]
    assert_unreadable(run)


@pytest.mark.parametrize("number", range(10))
def test_a_segment_rolled_back_to_an_older_copy(run: Path, tmp_path: Path, number: int) -> None:
    older = tmp_path / "older"
    with RunWriter.create(older, flush_events=PER_FLUSH) as writer:
        for n in range(EVENTS):
            writer.append(n + 1, *workload.event(n)[1:])  # the same events at other times
    for path in (segments(run)[number], manifests(run)[number]):
        shutil.copy(older / path.name, path)
    followers = {path.name for path in manifests(run)[number : number + 2]}
    assert followers & set(verdict(run)), "the chain breaks before or behind it"
    assert_unreadable(run)


@pytest.mark.parametrize("number", range(10))
def test_an_edited_manifest_with_all_its_hashes_recomputed(run: Path, number: int) -> None:
    path = manifests(run)[number]
    old = segment.read_manifest(path)
    path.write_bytes(replace(old, stream=hashlib.sha256(b"lie").hexdigest()).text())
    found = verdict(run)
    assert "does not follow from" in found[manifests(run)[number + 1].name]
    assert_unreadable(run)


def test_a_history_rewritten_with_every_hash_needs_the_kept_chain_head(
    run: Path, finished: tuple[Path, str]
) -> None:
    kept = finished[1]
    shutil.rmtree(run)
    with RunWriter.create(run) as writer:
        for number in range(EVENTS):
            sim_ns, kind, payload = workload.event(number)
            writer.append(sim_ns + (number == EVENTS - 1), kind, payload)
        writer.finish({"events": EVENTS})
    assert RunReader(run).verify() == []
    (finding,) = RunReader(run).verify(chain_head=kept)
    assert "the past rewritten" in finding.problem


@pytest.mark.parametrize("kept", range(1, 10))
def test_a_cut_tail_needs_the_kept_chain_head(run: Path, finished: tuple[Path, str], kept: int) -> None:
    for path in [*manifests(run)[kept:], *segments(run)[kept:]]:
        path.unlink()
    assert RunReader(run).verify() == [], "the rest is a valid, unfinished run"
    (finding,) = RunReader(run).verify(chain_head=finished[1])
    assert "the end was cut" in finding.problem
    assert finding.file == manifests(run)[-1].name


def test_the_chain_head_of_a_run_in_growth_stays_valid(finished: tuple[Path, str]) -> None:
    reader = RunReader(finished[0])
    for manifest in reader.manifests():
        assert reader.verify(chain_head=manifest.hash) == []
    assert reader.manifests()[-1].hash == finished[1] == reader.chain_head()


FOREIGN = [
    "notes.txt",
    "00000000000000000000.json.bak",
    "0.json",
    ".00000000000000000003.json.tmp",
    "x.parquet",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file(run: Path, name: str) -> None:
    (run / name).write_text("{}")
    assert RunReader(run).verify() == [IntegrityFinding(name, "does not belong to the run; move it away")]
    with pytest.raises(DamageError, match="move it away"):
        recover(run)
    assert (run / name).exists(), "recovery deletes nothing that it does not know"
    assert len(list(RunReader(run).events())) == EVENTS + 1, "readers read what is committed"


LEFT_OVER = [
    ".00000000000000000009.parquet.123-0.tmp",
    ".00000000000000000009.json.123-7.tmp",
    ".00000000000000000000.json.1-1.tmp",
    "00000000000000000009.parquet",
]


@pytest.mark.parametrize("name", LEFT_OVER)
def test_what_a_crash_leaves_is_no_damage_and_is_swept(unfinished: Path, name: str) -> None:
    (unfinished / name).write_bytes(manifests(unfinished)[0].read_bytes())
    assert RunReader(unfinished).verify() == []
    assert len(list(RunReader(unfinished).events())) == 9
    assert recover(unfinished) == (name,)
    assert not (unfinished / name).exists()
    assert recover(unfinished) == ()


def test_a_temporary_manifest_of_a_finished_run_is_no_damage(run: Path) -> None:
    (run / LEFT_OVER[1]).write_text("{")
    assert RunReader(run).verify() == []
    assert recover(run) == (LEFT_OVER[1],)


@pytest.mark.parametrize("number", range(5))
def test_segments_of_two_runs_mixed(run: Path, tmp_path: Path, number: int) -> None:
    other = tmp_path / "other"
    with RunWriter.create(other, flush_events=PER_FLUSH) as writer:
        for n in range(EVENTS):
            sim_ns, kind, payload = workload.event(n)
            writer.append(sim_ns * 2, kind, payload)
    first, second = manifests(run)[number + 1], segments(run)[number + 1]
    shutil.copy(other / first.name, first)
    shutil.copy(other / second.name, second)
    assert "one of them was changed or swapped, or is of another run" in " ".join(verdict(run).values())
    assert_unreadable(run)


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_symbolic_link_in_place_of_a_file(run: Path, tmp_path: Path, ending: str) -> None:
    path = sorted(run.glob(f"*.{ending}"))[2]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert verdict(run)[path.name] == "not a regular file"
    with pytest.raises(DamageError, match="not a regular file"):
        list(RunReader(run).events())


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_directory_in_place_of_a_file(run: Path, ending: str) -> None:
    path = sorted(run.glob(f"*.{ending}"))[2]
    path.unlink()
    path.mkdir()
    assert verdict(run)[path.name] == "not a regular file"


def test_an_empty_directory(tmp_path: Path) -> None:
    assert verdict(tmp_path) == {".": "holds no committed segment"}
    with pytest.raises(NotFoundError, match="before anything was stored"):
        RunReader(tmp_path).header()


def test_no_directory(tmp_path: Path) -> None:
    for act in (RunReader, RunWriter.open, recover):
        with pytest.raises(NotFoundError, match="no such run"):
            act(tmp_path / "nowhere")


def test_a_segment_behind_the_end(run: Path) -> None:
    last = RunReader(run).manifests()[-1]
    rows = [(last.last_seq + 1, 10**9, "link_restored", 1, "", '{"dst":1,"src":0}', "{}")]
    extra = segment.commit(run, rows, last.hash, Streams(), final=False)
    assert "lies behind the end of the run" in verdict(run)[extra.name]
    assert_unreadable(run)


def test_events_that_no_writer_accepts_are_found_though_every_hash_is_right(tmp_path: Path) -> None:
    for number, (kind, payload, problem) in enumerate(
        [
            ("link_failed", '{"dst": 1,"src":0}', "canonical"),
            ("link_failed", '{"dst":1}', "src"),
            ("link_burnt", "{}", "unknown to this version"),
            ("link_failed", "{", "Expecting"),
            ("link_failed", "[" * 100_000, "recursion"),
        ]
    ):
        run_dir = tmp_path / str(number)
        run_dir.mkdir()
        segment.commit(run_dir, [(0, 0, kind, 1, "", payload, "{}")], segment.GENESIS, Streams(), final=False)
        found = RunReader(run_dir).verify()
        assert any(problem in finding.problem and "event 0" in finding.problem for finding in found), found


def test_a_segment_that_is_no_parquet_though_every_hash_is_right(tmp_path: Path) -> None:
    data = b"PAR1 nothing of the kind PAR1"
    manifest = segment.SegmentManifest(
        0, 0, 1, len(data), hashlib.sha256(data).hexdigest(), segment.GENESIS, "0" * 64, True, "0" * 64
    )
    (tmp_path / manifest.data_name).write_bytes(data)
    (tmp_path / manifest.name).write_bytes(manifest.text())
    assert "not a Parquet file of events" in verdict(tmp_path)[manifest.data_name]


@pytest.mark.parametrize("field", ["first_seq", "rows", "final", "schema", "sha256"])
def test_a_manifest_of_the_wrong_kinds(run: Path, field: str) -> None:
    path = manifests(run)[0]
    fields = json.loads(path.read_bytes())
    path.write_text(json.dumps({**fields, field: "1"}, sort_keys=True, separators=(",", ":")) + "\n")
    assert "not a manifest" in verdict(run)[path.name]


def test_a_second_writer_is_locked_out(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.append(*workload.event(0))
        for act in (RunWriter.open, recover):
            with pytest.raises(LockedError, match="another process"):
                act(tmp_path / "run")
        assert len(list(RunReader(tmp_path / "run").events())) == 1, "readers need no lock"
    assert recover(tmp_path / "run") == ()


def test_a_directory_that_cannot_be_written_can_be_audited(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise StorageError(f"{path}: read-only")

    monkeypatch.setattr("replay.log.recovery.Lock", refuse)
    monkeypatch.setattr("replay.log.run_log.Lock", refuse)
    (run / ".lock").unlink()
    assert RunReader(run).verify() == []
    assert len(list(RunReader(run).events())) == EVENTS + 1
