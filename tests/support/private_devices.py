"""Devices of a test's own: what goes wrong with them must not reach those of the machine."""

import os
import stat
from pathlib import Path

import pytest

NULL, FULL = (1, 3), (1, 7)
"""Numbers of the devices /dev/null and /dev/full on Linux."""


def device(path: Path, numbers: tuple[int, int]) -> Path:
    """A new node of a character device at `path`; the test is skipped where none can be made."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        path.open("wb").close()  # a file system may be mounted without devices
    except OSError as error:
        pytest.skip(f"no device nodes can be made here ({error.strerror})")
    return path


def kind(path: Path) -> str:
    """The letter by which `ls -l` names the kind of a file."""
    return stat.filemode(path.lstat().st_mode)[0]
