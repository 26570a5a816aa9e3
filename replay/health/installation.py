"""Interpreter, torch and shipped files."""

import os
import platform
import sys
from collections.abc import Iterator

from ingest.core import resources
from ingest.core.extras import pip_line
from replay.health.check import Check

OLDEST = (3, 11)


def python() -> Check:
    """Returns the check of interpreter and machine."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    old = sys.version_info[:2] < OLDEST
    way = f"install Python {'.'.join(map(str, OLDEST))} or later"
    return Check("python", "broken" if old else "ok", found, way if old else "")


def torch() -> Check:
    """Returns the check of torch: its version, for which processor it was built, and whether it finds it."""
    try:
        import torch as library
    except (ImportError, OSError) as error:  # OSError: a library of the CUDA build cannot be loaded
        return Check("torch", "broken", f"cannot be imported ({error})", pip_line("torch"))
    built = library.version.cuda
    if built is None:
        return Check("torch", "ok", f"{library.__version__}, built for CPU")
    gpus = [library.cuda.get_device_name(n) for n in range(library.cuda.device_count())]
    found = f"{library.__version__}, built for CUDA {built}: {', '.join(gpus) or 'no GPU found, CPU is used'}"
    return Check("torch", "ok" if gpus else "note", found)


def shipped() -> Iterator[Check]:
    """Yields the checks of what comes with the project: traces, scenarios, weights."""
    for what, path in (("traces", resources.traces()), ("scenarios", resources.configs("scenarios"))):
        there = path.is_dir() and any(path.iterdir())
        found = str(path) if there else f"{path}: missing"
        yield Check(what, "ok" if there else "broken", found, "" if there else "install twin again")
