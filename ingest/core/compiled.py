"""`njit` of numba, whose compiled code is shared by everything on this machine that has the same sources.

numba invalidates compiled code by the file of its function alone. A function that it calls, or a constant
that is compiled into it, may come from another module. So the folder of a module's compiled code is named by
a digest of the module and of all modules that it imports, directly or not. The names hold no path: worktrees,
clones and processes with equal sources share one compilation, and a change recompiles just the modules that
import it.

The cache lies in the user's cache folder, else beside the sources, else among temporary files. Compiled code
is executed when it is read, so a folder that other users own or can write is not used. `NUMBA_CACHE_DIR`
overrides the place.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, overload

from ingest.core.errors import StorageError

SOURCES = Path(__file__).parents[2]
"""The folder of the packages."""
PACKAGES = ("ingest", "twin", "policy", "replay")
MAX_VERSIONS = 8
"""Versions of a module whose compiled code is retained: branches are switched to and fro."""
DAY_S = 86_400
_IMPORT = re.compile(rb"^from ((?:ingest|twin|policy|replay)[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
# Exceptions compile to references by name: a change of their module changes no machine code. Nearly every
# module imports it, so that counting it would recompile everything for a new error.
_NOT_COMPILED = frozenset({"ingest/core/errors.py"})


def choose_cache_folder() -> None:
    """Set `NUMBA_CACHE_DIR`, if it is unset, to the root folder of compiled code.

    Raises StorageError if no folder can be written.
    """
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(_cache_root())


def source_digest(module: Path, root: Path = SOURCES) -> str:
    """Return the digest of a module and of all modules under `root` that it imports, 64 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(_import_closure(module, root)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + _read(path) + b"\0")
    return digest.hexdigest()


def _import_closure(module: Path, root: Path) -> set[Path]:
    """Return the paths of a module and of the modules under `root` that it imports, directly or not."""
    reached, pending = {module}, [module]
    while pending:
        for path in _imported(pending.pop(), root):
            if path not in reached and path.relative_to(root).as_posix() not in _NOT_COMPILED:
                reached.add(path)
                pending.append(path)
    return reached


@cache
def _imported(module: Path, root: Path) -> tuple[Path, ...]:
    """Return the paths under `root` that a module imports by `from ... import ...` at its top level."""
    paths = []
    for source, names in _IMPORT.findall(_read(module)):
        place = root.joinpath(*source.decode().split("."))
        # `from package import module` names the module among the names.
        inside = [place / f"{name}.py" for name in re.findall(r"\w+", names.decode())]
        paths += [
            path for path in (place.with_suffix(".py"), place / "__init__.py", *inside) if path.is_file()
        ]
    return tuple(paths)


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()


def _cache_root() -> Path:
    """Return the folder for compiled code of all versions of the sources.

    Raises StorageError if none can be written.
    """
    beside = Path(__file__).parent / "__pycache__" / "compiled"
    for folder in (_user_cache(), beside, Path(tempfile.gettempdir()) / f"twin-compiled-{os.getuid()}"):
        if folder is not None and _is_private(folder):
            return folder
    try:
        return Path(tempfile.mkdtemp(prefix="twin-compiled-"))
    except OSError as error:
        raise StorageError(
            "no folder for compiled code can be written: neither in the home, nor beside the program, nor in "
            f"{tempfile.gettempdir()} ({error.strerror}); set NUMBA_CACHE_DIR to a folder of your own"
        ) from error


def _user_cache() -> Path | None:
    """Return the folder in the user's cache, which may not exist yet; None if the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "twin-compiled"
    except RuntimeError:
        return None


def _is_private(folder: Path) -> bool:
    """Create a folder, if it does not exist; return True if only this user can write it, and can."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    owned = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return owned and not status.st_mode & 0o022 and os.access(folder, os.W_OK)


def kept(kernel: Any) -> bool:
    """Returns True if compiled code of this function is on the disk, for this source, numba and processor."""
    # numba has no public call for it; its index is empty if it was made by another version or source.
    return bool(kernel._cache._cache_file._load_index())


choose_cache_folder()

import numba  # noqa: E402 - it reads the variable when it is imported
from numba.core import caching  # noqa: E402
from numba.core.registry import CPUDispatcher  # noqa: E402


class ContentLocator(caching._CacheLocator):
    """Places the compiled code of a module of ours by the content of its sources. numba asks it first."""

    def __init__(self, function: Any, module: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._stamp = source_digest(module)
        self._versions = Path(numba.config.CACHE_DIR) / numba.__version__
        self._name = ".".join(module.relative_to(SOURCES).with_suffix("").parts)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "ContentLocator | None":
        """Return the locator of a function; None for functions that are not in our packages, or if the folder
        cannot be written: numba then tries its own places."""
        module = Path(py_file)
        if not numba.config.CACHE_DIR or not any(module.is_relative_to(SOURCES / name) for name in PACKAGES):
            return None
        locator = cls(py_func, module)
        try:
            locator._use_folder()
        except OSError:
            return None
        return locator

    def get_cache_path(self) -> str:
        """Return the folder of the module's compiled code."""
        return str(self._versions / f"{self._name}-{self._stamp[:16]}")

    def get_source_stamp(self) -> str:
        """Return the digest of the sources."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Return the line of the function, which tells functions of one name apart."""
        return str(self._line)

    def _use_folder(self) -> None:
        """Create the folder and drop the least recently used versions of the module, or mark it as in use."""
        folder = Path(self.get_cache_path())
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            versions = sorted(self._versions.glob(f"{self._name}-*"), key=_last_use, reverse=True)
            for old in versions[MAX_VERSIONS:]:
                # A process that runs this version goes on from memory.
                shutil.rmtree(old, ignore_errors=True)
        elif time.time() - folder.stat().st_mtime > DAY_S:
            os.utime(folder)


def _last_use(folder: Path) -> float:
    """Return the time of a folder [s]; 0 if another process has removed it."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


caching.CacheImpl._locator_classes.insert(0, ContentLocator)

Result = TypeVar("Result")


# Parameters are not checked: numba converts them (integers of numpy, tuples), and Python's annotations do not
# say so. The type of the result holds.
@overload
def njit(function: Callable[..., Result], /) -> Callable[..., Result]: ...
@overload
def njit(
    *,
    inner: bool = ...,
    borrowing: bool = ...,
    cache: bool = ...,
    nogil: bool = ...,
    inline: Literal["never", "always"] = ...,
    error_model: Literal["python", "numpy"] = ...,
    fastmath: bool | set[str] = ...,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]: ...
def njit(function: Any = None, /, *, inner: bool = False, borrowing: bool = False, **options: Any) -> Any:
    """Compile a function by `numba.njit`, as a decorator with or without options.

    No wrapper for callers in C is compiled: none exists, and it takes a fourth of the time to compile.

    inner: only compiled functions call it, so no wrapper turns Python's arguments into its own; for a state
        of a hundred arrays that wrapper is most of what is compiled. A call from Python raises TypeError.
    borrowing: it counts no references to the arrays that it is given. For a state of many arrays that is
        passed on, these atomic operations would be most of the time of a loop. It may not create an array,
        which does not compile, nor call a function that returns a new one, which would never be freed.
    """

    def decorate(python: Any) -> Any:
        # `_nrt` says whether a function can create arrays. Unset, it would be taken from the caller.
        compiled = numba.njit(no_cfunc_wrapper=True, no_cpython_wrapper=inner, _nrt=not borrowing, **options)(
            python
        )
        if inner and isinstance(compiled, CPUDispatcher):  # else NUMBA_DISABLE_JIT is set
            compiled.__class__ = _Inner
        return compiled

    return decorate if function is None else decorate(function)


class _Inner(CPUDispatcher):
    """A compiled function without a wrapper for Python."""

    def __call__(self, *_: Any) -> NoReturn:
        """Raise TypeError, where numba would end the process."""
        raise TypeError(f"{self.__name__} is compiled for calls from compiled functions alone")


__all__ = ["ContentLocator", "choose_cache_folder", "kept", "njit", "source_digest"]
