"""`njit` of numba, with a place for its compiled code also where neither the code nor a home can be written.

numba keeps what it compiled beside the source, else in the user's cache folder, and fails where it can write
neither: in a container with a read-only image and no home. Compiled code is executed when it is read, so a
folder that others could have made or written is not used.
"""

import os
import stat
import tempfile
from pathlib import Path

from ingest.core.errors import StorageError


def choose_cache_folder() -> None:
    """Sets `NUMBA_CACHE_DIR` if it is unset and numba would find no folder that it can write.

    Raises StorageError if no temporary folder can be written either.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(Path(__file__).parent, os.W_OK) or _home_is_writable():
        return
    own = Path(tempfile.gettempdir()) / f"twin-compiled-{os.getuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
        os.environ["NUMBA_CACHE_DIR"] = str(own) if private else tempfile.mkdtemp(prefix="twin-compiled-")
    except OSError as error:
        raise StorageError(
            "no folder for compiled code can be written: neither beside the program, nor in the home, nor in "
            f"{tempfile.gettempdir()} ({error.strerror}); set NUMBA_CACHE_DIR to a folder of your own"
        ) from error


def _home_is_writable() -> bool:
    """Makes numba's folder in the user's cache; returns True if it can be written."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "numba"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return False
    return os.access(folder, os.W_OK)


choose_cache_folder()

from numba import njit  # noqa: E402 - numba reads the variable when it is imported

__all__ = ["choose_cache_folder", "njit"]
