"""What is no file of measurements by its kind: devices, FIFOs, sockets, and files that the kernel makes up.

A link to /proc/kcore or /dev/zero in a folder has no end or blocks whoever reads it; its size says nothing.
"""

import os
import stat
from functools import cache
from pathlib import Path

from ingest.core.errors import InputError

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a disk"), (stat.S_ISDIR, "a folder"),
)  # fmt: skip
_KERNEL_FILE_SYSTEMS = {
    "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs",
    "tracefs",
}  # fmt: skip
_MOUNTS = Path("/proc/self/mountinfo")


def refuse_special(path: Path) -> os.stat_result:
    """Returns the status of a regular file, behind links.

    Raises:
        InputError: it is something else, or made up by the kernel. OSError: it cannot be looked at.
    """
    status = path.stat()
    kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), None)
    if of_the_kernel(path):
        kind = "a file of the system (as in /proc), not of a disk"
    elif kind is None and not stat.S_ISREG(status.st_mode):
        kind = "of an unknown kind"
    if kind is not None:
        raise InputError(f"{path}: {kind}, not a regular file; left out")
    return status


def of_the_kernel(path: Path) -> bool:
    """True if the kernel makes up the file or folder that `path` leads to, as everything in /proc and /sys.

    Raises:
        OSError: it cannot be looked at.
    """
    return path.stat().st_dev in _kernel_devices()


@cache
def _kernel_devices() -> frozenset[int]:
    """Device numbers of the mounted file systems that are views of the kernel; empty outside of Linux."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return frozenset()
    found = set()
    for line in lines:
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] in _KERNEL_FILE_SYSTEMS:
            major, _, minor = before.split(" ")[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)
