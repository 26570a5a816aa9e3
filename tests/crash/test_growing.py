"""A run is audited and read while it is written, killed, resumed and compacted: every interleaving is fine.

The life of a run is recorded once, change by change. A test then lets it go on during and between the looks
at its directory and the readings of its files. A look shows what is there all the while; of what comes or
goes meanwhile it shows whatever the test says, in the worst order that POSIX allows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.durable import Disk
from replay.log import recovery, segment, verification
from replay.log.compaction import compact
from replay.log.run_log import RunReader
from replay.log.tail import NAME
from tests.support import crash_workload as workload
from tests.support.disks import Crash

EVENTS = 24
SEEDS = st.integers(0, 2**32 - 1)
Change = tuple[str, bytes | None]
"""A name, and the bytes that it has from now on; None: it went."""


class Life(list[Change]):
    """All changes of a run's directory; short in the words of a failed example."""

    def __repr__(self) -> str:
        return f"{len(self)} changes"


class Recorder(Disk):
    """Notes every change of a directory, and dies before it makes a file of `deadly`'s name."""

    def __init__(self, changes: list[Change], deadly: str = "nothing") -> None:
        self.changes, self.deadly = changes, deadly
        self.made: dict[int, Path] = {}

    def create(self, path: Path) -> int:
        if self.deadly in path.name:
            raise Crash
        self.changes.append((path.name, b""))
        self.made[fd := super().create(path)] = path
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        done = super().write(fd, data)
        if NAME.fullmatch(self.made[fd].name):  # other files are whole when they get their name
            self.changes.append((self.made[fd].name, self.made[fd].read_bytes()))
        return done

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.changes.append((target.name, source.read_bytes()))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.changes.append((path.name, None))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A run that was killed before its third manifest, resumed, and compacted at the second attempt."""
    run_dir, changes = tmp_path_factory.mktemp("life") / "run", Life()
    for per_flush, deadly in ((4, f"{5:020d}.json"), (3, "nothing")):
        kill(lambda p=per_flush, d=deadly: workload.write(run_dir, EVENTS, p, disk=Recorder(changes, d)))
    for piece_events, deadly in ((4, f"{5:020d}-{10:020d}"), (9, "nothing")):
        kill(lambda n=piece_events, d=deadly: compact(run_dir, piece_events=n, disk=Recorder(changes, d)))
    return changes


def kill(act: Callable[[], object]) -> None:
    with suppress(Crash):
        act()


class Directory:
    """The run's directory, which changes while it is looked at; `steps` and `shown` say how."""

    def __init__(
        self, folder: Path, life: Life, steps: Callable[[], int], shown: Callable[[str], object]
    ) -> None:
        self.folder, self._coming, self._steps, self._shown = folder, iter(life), steps, shown
        self.looks, self.present = 0, {recovery.LOCK}
        folder.mkdir()
        (folder / recovery.LOCK).touch()

    def go_on(self, steps: int) -> set[str]:
        """Let so many changes happen; returns the names that came or went."""
        touched = set()
        for name, data in [change for _, change in zip(range(steps), self._coming, strict=False)]:
            if data is None:
                (self.folder / name).unlink()
                self.present.remove(name)
            else:
                (self.folder / name).write_bytes(data)
                self.present.add(name)
            touched.add(name)
        return touched

    def look(self) -> Iterator[Path]:
        before = set(self.present)
        touched = self.go_on(self._steps())
        self.looks += 1
        shown = (before - touched) | {name for name in sorted(touched) if self._shown(name)}
        return iter([self.folder / name for name in sorted(shown, reverse=True)])

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Every look at it and every file read from it lets it change."""
        read, iterate = segment.read_file, Path.iterdir

        def reading(path: Path) -> bytes:
            self.go_on(self._steps())
            return read(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segment, "read_file", reading)
            patch.setattr(Path, "iterdir", lambda path: self.look() if path == self.folder else iterate(path))
            yield


def given_by(answers: Sequence[int]) -> Callable[[], int]:
    """Says the answers one after the other, and nothing when they are spent."""
    left = iter(answers)
    return lambda: next(left, 0)


def drawn(seed: int) -> Callable[[str], bool]:
    """Shows one name in two."""
    chance = Random(seed)
    return lambda _: chance.random() < 0.5


def committed(folder: Path) -> int:
    """How many events are in the run now."""
    return recovery.walk(folder).end


def index(life: Life, name: str) -> int:
    """How many changes there were when `name` came for the last time."""
    return 1 + max(place for place, (known, data) in enumerate(life) if known == name and data is not None)


def an_audit_finds_no_damage(directory: Directory) -> None:
    there = committed(directory.folder)
    with directory.alive():
        problems = {finding.problem for finding in verification.verify(directory.folder)}
    assert problems <= (set() if there else {"holds no committed segment"})
    assert directory.looks in (2, 4)  # four: it was compacted under the first two


def a_reader_reads_a_whole_beginning(directory: Directory) -> None:
    there = committed(directory.folder)
    with directory.alive():
        numbers = [event.seq for event in RunReader(directory.folder).events()]
    assert numbers == list(range(len(numbers))) and len(numbers) >= there


@pytest.mark.parametrize("beside", [an_audit_finds_no_damage, a_reader_reads_a_whole_beginning])
@given(start=st.integers(0, 110), steps=st.lists(st.integers(0, 40), max_size=20), chances=SEEDS)
@settings(deadline=None, max_examples=300 * workload.EFFORT)
def test_beside_a_living_run(
    life: Life,
    tmp_path_factory: pytest.TempPathFactory,
    beside: Callable[[Directory], None],
    start: int,
    steps: list[int],
    chances: int,
) -> None:
    directory = Directory(tmp_path_factory.mktemp("life") / "run", life, given_by(steps), drawn(chances))
    directory.go_on(start)
    beside(directory)
    workload.tally("growing", 1)


def test_beside_a_writer_faster_than_every_look_two_looks_are_taken(life: Life, tmp_path: Path) -> None:
    directory = Directory(tmp_path / "run", life, lambda: 9, lambda _: True)
    directory.go_on(index(life, f"{0:020d}.json"))
    with directory.alive():
        present = recovery.names(directory.folder)
    assert directory.looks == 2 and f"{0:020d}.json" in present


OLD, NEW = f"{0:020d}-{4:020d}.parquet", f"{0:020d}-{10:020d}.parquet"
"""A merged file of the attempt that was given up, and one of the attempt that was not."""


@pytest.mark.parametrize(
    ("until", "to", "shown"),
    [
        pytest.param(
            f"{0:020d}.json", f"{11:020d}.json", {f"{11:020d}.json"}, id="a manifest without those before"
        ),
        pytest.param(f"{23:020d}.parquet", OLD, {OLD}, id="a merged file without the last manifest"),
        pytest.param(OLD, "compacted.json", {OLD, "compacted.json"}, id="the record and a file long gone"),
        pytest.param(NEW, None, set(), id="neither the record nor what it replaces"),
        pytest.param(NEW, None, {f"{0:020d}.json"}, id="the first manifest alone"),
    ],
)
@pytest.mark.parametrize("looks_before", [0, 1])
def test_what_comes_during_a_look_is_no_damage(
    life: Life, tmp_path: Path, until: str, to: str | None, shown: set[str], looks_before: int
) -> None:
    first = index(life, until)
    steps = iter([0] * looks_before + [(index(life, to) if to else len(life)) - first])
    directory = Directory(tmp_path / "run", life, lambda: next(steps, 0), shown.__contains__)
    directory.go_on(first)
    with directory.alive():
        assert verification.verify(directory.folder) == []
