"""From paths to the lake: find the data sets, find a reader for every file, store its rows once.

A file is known by its content, its reader with version, and its data set's options: what the lake holds
already is left alone; the same name with other content, or a newer reader, replaces the old rows in one step.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

from ingest.core.errors import InputError
from ingest.core.progress import SILENT, Progress
from ingest.lake import lake
from ingest.lake.undated import UNDATED
from ingest.parsing import archive
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import Reader, identified
from ingest.parsing.source import Source, file_of, from_file
from ingest.pipeline import derived_datasets, discover, refusal
from ingest.pipeline.discover import DataSet
from ingest.pipeline.ingest_report import FileResult, IngestReport
from ingest.pipeline.transaction import Taken, Transaction
from ingest.readers import registry


def ingest(paths: Sequence[Path], store: Path, progress: Progress | None = None) -> IngestReport:
    """Reads everything under `paths` into the lake of `store`.

    Raises:
        UsageError: a path does not exist, or a dataset.toml is wrong.
        InputError: a path holds no data files, or not one file could be read.
        LockedError: another process ingests into this store.
    """
    began = perf_counter()
    sets = discover.data_sets(paths)
    results: list[FileResult] = []
    with _Lake(store) as target:
        for item in sets:
            results.extend(_Ingest(target, item.options).run(item, progress or SILENT))
        notes = [note for item in sets for note in _derive(target, item.options, results)]
        undated = sorted({result.dataset for result in results if result.undated})
        notes += [f"{name}: {UNDATED}" for name in undated]
        rejected = [item.options.name for item in sets if target.rejected(item.options.name)]
    report = IngestReport(
        tuple(results), perf_counter() - began, tuple(notes), registry.plugin_problems(), tuple(rejected)
    )
    if len(report.skipped) == len(report.files):
        raise InputError(_nothing(report))
    return report


def preview(paths: Sequence[Path], store: Path) -> list[FileResult]:
    """Returns the reader that would take each file, or why none does; no row is read, nothing is stored.

    Raises:
        UsageError: a path does not exist, or a dataset.toml is wrong.
    """
    sets = discover.data_sets(paths)
    with _Lake(store) as target:
        return [result for item in sets for result in _Preview(target, item.options).run(item, SILENT)]


def ingest_sources(options: DatasetOptions, sources: Sequence[Source], store: Path) -> list[FileResult]:
    """Reads sources of one data set into the lake; returns the result of each.

    Raises:
        LockedError: another process ingests into this store.
    """
    with _Lake(store) as target:
        return _Ingest(target, options).take(sources)


def ingest_set(item: DataSet, store: Path) -> list[FileResult]:
    """Reads the files of one data set into the lake; returns the result of each. Nothing is derived from it.

    Raises:
        LockedError: another process ingests into this store.
    """
    with _Lake(store) as target:
        return _Ingest(target, item.options).run(item, SILENT)


def _derive(target: "_Lake", options: DatasetOptions, results: list[FileResult]) -> Iterator[str]:
    """Compute what is to be derived from a data set; what was assumed, one sentence each."""
    for recipe in derived_datasets.recipes(options):
        if any(m.dataset == options.name for m in target.manifests):
            made = _Ingest(target, recipe.options(options)).derived(recipe)
            results.append(made)
            if not made.skipped_reason:
                yield f"{recipe.name}: {recipe.statement}"


def _nothing(report: IngestReport) -> str:
    return "\n".join(["no file could be read", *refusal.lines(report.skipped), *report.plugin_problems])


class _Lake:
    """The lake as it is now; locked, and cleaned of left-overs, from the first change on."""

    def __init__(self, store: Path):
        self.store = store
        self.manifests = lake.live(store)
        self._held: ExitStack | None = None

    def lock(self) -> bool:
        """Become the only writer; true the first time, when the lake may have changed since the last look."""
        if self._held is not None:
            return False
        with ExitStack() as stack:
            stack.enter_context(lake.writing(self.store))
            self._held = stack.pop_all()
        lake.clean(self.store)
        self.refresh()
        return True

    def refresh(self) -> None:
        """Read the manifests again."""
        self.manifests = lake.live(self.store)

    def rejected(self, dataset: str) -> bool:
        """Returns True if the lake has only rejects of a data set."""
        entries = [entry for m in self.manifests if m.dataset == dataset for entry in m.sources]
        return any(e.rejected for e in entries) and not any(count for e in entries for _, count in e.rows)

    def __enter__(self) -> "_Lake":
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.close()


class _Ingest:
    """The ingest of one data set."""

    def __init__(self, target: _Lake, options: DatasetOptions):
        self.target, self.options = target, options
        self.options_digest = options.digest()
        self.unit = Transaction(target.store, options)
        self.results: list[FileResult | Taken] = []
        self._paths: dict[str, Path] = {}  # of the files of this ingest, by name
        self._same: dict[str, bool] = {}  # whether they hold what the lake has under their name
        self._look()

    def run(self, item: DataSet, progress: Progress) -> list[FileResult]:
        """Reads every file; returns the results in the order of the files."""
        progress.start(len(item.files), item.options.name, "files")
        self._paths = {item.name_of(path): path for path in item.files}
        for name, path in self._paths.items():
            for source in self._sources(path, name):
                self._one(source)
            progress.advance(1, path.name)
        return self._finish()

    def take(self, sources: Sequence[Source]) -> list[FileResult]:
        """Reads the given sources; returns their results."""
        for source in sources:
            self._one(source)
        return self._finish()

    def _finish(self) -> list[FileResult]:
        self._commit(self.unit)
        return [r if isinstance(r, FileResult) else self._result(r) for r in self.results]

    def _look(self) -> None:
        """Note what the lake holds of this data set, by content and by name."""
        entries = [e for m in self.target.manifests if m.dataset == self.options.name for e in m.sources]
        self._keys = {entry.key for entry in entries}
        self._holders = {entry.key: entry for entry in entries}
        self._by_name = {entry.file: entry for entry in entries}

    def _sources(self, path: Path, name: str) -> Iterator[Source]:
        try:
            if not archive.is_archive(path):
                yield from_file(path, name)
                return
            held = archive.contents(path, name)
            for member, why_not in held.skipped:
                self._skip(f"{path}/{member}", why_not)
            yield from held.sources()
        except InputError as error:
            self._skip(str(path), error)

    def _one(self, source: Source) -> None:
        path = source.path
        if archive.is_archive(path):
            self._skip(source.shown, "an archive inside an archive; take it out and give it by itself")
            return
        reader, why_not = registry.find(path, source.head, self.options)
        if reader is None:
            self._skip(source.shown, why_not)
            return
        self._store(identified(source, reader), reader)

    def derived(self, recipe: derived_datasets.Recipe) -> FileResult:
        """Compute a data set from another one, unless the lake has it."""
        self._store(recipe.source(self.target.store), derived_datasets.Available(recipe, self.target.store))
        self._commit(self.unit)
        (result,) = self.results
        return result if isinstance(result, FileResult) else self._result(result)

    def _store(self, source: Source, reader: Reader) -> None:
        """Take a source into the lake, unless it is there."""
        key = source.sha256, reader.name, reader.version, self.options_digest
        if not self._held(key, source) and self.target.lock():
            self._look()
        if self._held(key, source):
            self.results.append(FileResult(source.shown, self.options.name, reader.name, already=True))
        else:
            self._read(source, reader)
            self._keys.add(key)
            self._holders.pop(key, None)

    def _held(self, key: tuple[str, str, int, str], source: Source) -> bool:
        """True if the lake has this content, and will have it when this ingest is over.

        It will not where it took it from another file of this ingest that has other content by now, as when a
        log was rotated: those rows are about to be replaced, so that `source` must bring them again.
        """
        entry = self._holders.get(key)
        path = None if entry is None or entry.file == source.name else self._paths.get(entry.file)
        if entry is None or path is None or archive.is_archive(path):
            return key in self._keys
        if entry.file not in self._same:
            try:
                self._same[entry.file] = from_file(path, entry.file).sha256 == entry.sha256
            except InputError:  # reported when the file is read; its rows in the lake stay
                self._same[entry.file] = True
        return self._same[entry.file]

    def _read(self, source: Source, reader: Reader) -> None:
        """Take the source into the common unit, or into one of its own if it is large."""
        unit = self.unit if source.small else Transaction(self.target.store, self.options)
        try:
            taken = unit.take(source, reader)
        except InputError as error:
            if unit is not self.unit:
                unit.give_up()
            self._skip(source.shown, error)
            return
        self.results.append(taken)
        old = self._by_name.get(source.name)
        if old is not None and self._holders.get(old.key) is old:
            self._keys.discard(old.key)  # its rows go away; a copy of that content elsewhere is read again
            del self._holders[old.key]
        if unit is not self.unit:
            self._commit(unit)
        elif unit.full:
            self._commit(unit)
            self.unit = Transaction(self.target.store, self.options)

    def _commit(self, unit: Transaction) -> None:
        """Make the unit part of the lake, in place of what the lake held of the same files."""
        if not unit.taken:
            return
        files = {taken.source.name for taken in unit.taken}
        wholes = {file_of(name) for name in files}  # a piece replaces its file, a file all its pieces
        contents = {taken.source.sha256 for taken in unit.taken}
        replaced: set[str] = set()
        for manifest in self.target.manifests:
            if manifest.dataset != self.options.name:
                continue
            gone = {
                e.file
                for e in manifest.sources
                if e.file in files or e.file in wholes or file_of(e.file) in files or e.sha256 in contents
            }
            if gone:
                unit.retain(*lake.without(self.target.store, manifest, gone))
                # What it replaced in its turn must not come back, should a clean-up be cut short.
                replaced |= {manifest.id, *manifest.replaces}
        unit.commit(sorted(replaced))
        self.target.refresh()

    def _skip(self, shown: str, why_not: InputError | str) -> None:
        reason = str(why_not).removeprefix(f"{shown}: ")
        self.results.append(FileResult(shown, self.options.name, skipped_reason=reason))

    def _result(self, taken: Taken) -> FileResult:
        return FileResult(
            taken.source.shown,
            self.options.name,
            taken.reader.name,
            taken.rows_in,
            dict(sorted(taken.rows.items())),
            taken.rejected,
            examples=tuple(taken.examples),
            undated=taken.undated,
        )


class _Preview(_Ingest):
    """An ingest that finds readers and reads no row."""

    def _store(self, source: Source, reader: Reader) -> None:
        key = source.sha256, reader.name, reader.version, self.options_digest
        held = self._held(key, source)
        self.results.append(FileResult(source.shown, self.options.name, reader.name, already=held))
