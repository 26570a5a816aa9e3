"""Data sets under a path, and the files of each.

* A folder with a `dataset.toml` is a data set.
* A folder that holds nothing but documentation and folders is a collection of data sets if it, or a folder
  below it, describes sets (a `SOURCES.md` or a `dataset.toml`); each of its folders is looked at in turn.
* Any other folder is one data set, with everything below it, named after the folder.
* A single file belongs to the nearest folder above it that has a `dataset.toml`, else to its own folder.

Files whose name begins with a dot and documentation are not data.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.core.errors import InputError, UsageError
from ingest.core.file_kinds import of_the_kernel
from ingest.parsing import dataset
from ingest.parsing.dataset import DatasetOptions

_DOCUMENTS = (
    "readme",
    "license",
    "licence",
    "notice",
    "citation",
    "changelog",
    "sources.md",
    dataset.FILE_NAME,
)
_DESCRIPTIONS = {"SOURCES.md", dataset.FILE_NAME}


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set on disk: its options, its folder, and its files in a fixed order."""

    options: DatasetOptions
    root: Path
    files: tuple[Path, ...]

    def name_of(self, file: Path) -> str:
        """The file's path inside the data set."""
        return file.relative_to(self.root).as_posix()


def data_sets(paths: Sequence[Path]) -> list[DataSet]:
    """The data sets under `paths`, sorted by name; a data set met twice is one.

    Raises:
        UsageError: a path does not exist, or two folders claim one name.
        InputError: a path holds nothing but empty folders and documentation.
    """
    found: dict[Path, set[Path]] = {}
    for path in paths:
        try:
            held = {root: files for root, files in _sets_of(path) if files}
        except OSError as error:
            where = error.filename or path
            raise InputError(f"{where}: cannot be read ({error.strerror}); check its rights") from error
        if not held:
            raise InputError(f"{path}: no data files here; give a file or a folder that holds measurements")
        for root, files in held.items():
            found.setdefault(root, set()).update(files)
    sets = [DataSet(dataset.options(root), root, tuple(sorted(files))) for root, files in found.items()]
    _refuse_clash(sets)
    return sorted(sets, key=lambda s: s.options.name)


def _refuse_clash(sets: Sequence[DataSet]) -> None:
    roots: dict[str, Path] = {}
    for item in sets:
        other = roots.setdefault(item.options.name, item.root)
        if other != item.root:
            raise UsageError(
                f"{other} and {item.root}: both are data set {item.options.name!r}; "
                f"give one another name in its {dataset.FILE_NAME}"
            )


def _sets_of(path: Path) -> Iterator[tuple[Path, list[Path]]]:
    if path.is_file():
        yield next((p for p in path.parents if (p / dataset.FILE_NAME).is_file()), path.parent), [path]
        return
    if not path.is_dir():
        if path.exists():
            raise UsageError(f"{path}: a device, a FIFO or a socket; give a file or a folder")
        raise UsageError(
            f"{path}: no such file or folder; `twin ingest shipped` reads the traces of the program"
        )
    yield from _below(path)


def _below(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    if not (folder / dataset.FILE_NAME).is_file() and _is_collection(folder):
        for child in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
            if child.is_symlink() and of_the_kernel(child):
                yield folder, [child]  # which is refused by its kind, and named
            else:
                yield from _below(child)
        return
    own, nested = _files(folder)
    yield folder, own
    for child in nested:
        yield from _below(child)


def _is_collection(folder: Path) -> bool:
    if any(p.is_file() and _is_data(p) for p in folder.iterdir()):
        return False
    return any(name in _DESCRIPTIONS for _, _, names in os.walk(folder) for name in names)


def _files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Data files under `folder`, and the folders below that are data sets of their own."""
    own: list[Path] = []
    nested: list[Path] = []
    for here, folders, names in os.walk(folder, onerror=_raised):
        place = Path(here)
        for child in sorted(folders):
            if (place / child / dataset.FILE_NAME).is_file():
                nested.append(place / child)
        folders[:] = sorted(
            c for c in folders if not c.startswith(".") and place / c not in nested and c != "__MACOSX"
        )
        own.extend(place / name for name in names if _is_data(place / name))
    return own, nested


def _raised(error: OSError) -> None:
    raise error


def _is_data(path: Path) -> bool:
    return not path.name.startswith(".") and not path.name.lower().startswith(_DOCUMENTS)
