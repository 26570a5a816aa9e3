"""`njit` of numba, with a place of its own for the code compiled from just these sources.

numba keeps what it compiled by the source of each function alone. A function that it calls, or a constant, in
another module may have changed meanwhile: then it would run the old one, or fail to read its index. So the
folder is named after a digest of everything that compiled code is made from.

The folder lies beside the source, else in the user's cache, else, in a container with a read-only image and
no home, among temporary files. Compiled code is executed when it is read, so a folder there that others
could have made or written is not used. `NUMBA_CACHE_DIR`, where it is set, stands.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ingest.core.errors import StorageError

SOURCES = Path(__file__).parents[2]
"""The folder of the packages."""
PACKAGES = ("ingest", "twin", "policy", "replay")
KEPT = 3
"""Folders of other sources that are kept: branches are switched to and fro."""
_MARK = b"compiled import njit"
_IMPORTED = re.compile(rb"^from ((?:ingest|twin|policy|replay)[\w.]*) import", re.MULTILINE)


def choose_cache_folder() -> None:
    """Sets `NUMBA_CACHE_DIR`, if it is unset, to a folder for the code of these sources.

    Raises StorageError if no folder can be written.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    place = _place() / source_digest(SOURCES)[:16]
    if not place.is_dir():
        _forget_old(place.parent)
    os.environ["NUMBA_CACHE_DIR"] = str(place)


def source_digest(root: Path) -> str:
    """Returns the digest of the modules under `root` that have compiled functions, and of those that they
    import, which may hold what is compiled into them."""
    held: dict[Path, bytes] = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            content = path.read_bytes()
            if _MARK in content:
                held[path] = content
    for content in list(held.values()):
        for name in _IMPORTED.findall(content):
            path = root.joinpath(*name.decode().split(".")).with_suffix(".py")
            if path not in held and path.is_file():
                held[path] = path.read_bytes()
    digest = hashlib.sha256()
    for path in sorted(held):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + held[path] + b"\0")
    return digest.hexdigest()


def _forget_old(place: Path) -> None:
    """Removes all but the newest folders of other sources; one that is in use goes on in memory."""
    try:
        folders = sorted(place.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:  # none yet, or another process removes them
        return
    for folder in folders[KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def _place() -> Path:
    """The folder that holds a folder for each version of the sources.

    Raises StorageError if none can be written.
    """
    if os.access(Path(__file__).parent, os.W_OK):
        return Path(__file__).parent / "__pycache__" / "compiled"
    home = _cache_of_user()
    if home is not None:
        return home
    own = Path(tempfile.gettempdir()) / f"twin-compiled-{os.getuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
        return own if private else Path(tempfile.mkdtemp(prefix="twin-compiled-"))
    except OSError as error:
        raise StorageError(
            "no folder for compiled code can be written: neither beside the program, nor in the home, nor in "
            f"{tempfile.gettempdir()} ({error.strerror}); set NUMBA_CACHE_DIR to a folder of your own"
        ) from error


def _cache_of_user() -> Path | None:
    """The folder in the user's cache; None if it cannot be written."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "twin-compiled"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def kept(kernel: Any) -> bool:
    """Returns True if compiled code of this function is on the disk, for this source, numba and processor."""
    # numba has no public call for it; its index is empty if it was made by another version or source.
    return bool(kernel._cache._cache_file._load_index())


choose_cache_folder()

import numba  # noqa: E402 - it reads the variable when it is imported
from numba.core.registry import CPUDispatcher  # noqa: E402

njit: Any = partial(numba.njit, no_cfunc_wrapper=True, _nrt=True)
"""`numba.njit`, without the wrapper for callers in C: nobody calls from there, and it takes a fourth of the
time to compile. It can make arrays, whoever calls it: unsaid, that would be taken over from the caller."""


def njit_borrowing(**options: Any) -> Any:
    """Returns the decorator of a compiled function that counts no references to the arrays that it is given:
    for a state of many arrays that is passed on, atomic operations would be most of the time of a loop.

    It may not make an array, which does not compile, nor call a function that returns a new one, which would
    never be freed.
    """
    return njit(_nrt=False, **options)


class _Inner(CPUDispatcher):
    """A compiled function without a way in from Python."""

    def __call__(self, *_: Any) -> NoReturn:
        """Raises TypeError, where numba would end the process."""
        raise TypeError(f"{self.__name__} is compiled for calls from compiled functions alone")


def njit_inner(*, borrowing: bool = False, **options: Any) -> Any:
    """Returns the decorator of a function that only compiled functions call: no wrapper turns its arguments
    from Python's into its own. For a state of a hundred arrays the wrapper is most of what is compiled.
    `borrowing`: as `njit_borrowing`."""

    def decorate(function: Any) -> Any:
        made = njit(no_cpython_wrapper=True, _nrt=not borrowing, **options)(function)
        if isinstance(made, CPUDispatcher):  # else NUMBA_DISABLE_JIT is set
            made.__class__ = _Inner
        return made

    return decorate


__all__ = ["choose_cache_folder", "kept", "njit", "njit_borrowing", "njit_inner", "source_digest"]
