"""Installed packages against the requirements of the distribution, its extras, and the pinned versions."""

from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ingest.core import resources, text_files
from ingest.core.extras import NAME, line_of, pip_line
from replay.health.check import Check

DEVELOPMENT = ("dev", "release")
"""Extras of those who change the code, which a user does not miss."""
NOTED = 6
"""Packages that a note names."""


def checks() -> Iterator[Check]:
    """Yields what is wrong with required packages, then each extra, then differences from the pins."""
    try:
        required = metadata.requires(NAME) or []
        extras = metadata.metadata(NAME).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        yield Check(
            "packages", "note", "twin runs from a source tree that was never installed", pip_line("-e .")
        )
        return
    needed = [Requirement(line) for line in required]
    yield from _required([one for one in needed if _applies(one, "")])
    for extra in extras:
        if extra not in DEVELOPMENT:
            own = [one for one in needed if _applies(one, extra) and not _applies(one, "")]
            yield of_extra(extra, own)
    yield from _pinned(resources.root() / "constraints.txt")


def faults(needed: Iterable[Requirement]) -> list[str]:
    """Returns a phrase for each requirement that is not met."""
    found = []
    for one in needed:
        version = installed(one.name)
        if version is None:
            found.append(f"{one.name} is not installed")
        elif not one.specifier.contains(version, prereleases=True):
            found.append(f"{one.name} {version} is not {one.specifier}")
    return found


def of_extra(extra: str, needed: list[Requirement]) -> Check:
    """Returns the check of one extra: present, or the line that installs it."""
    problems = faults(needed)
    if problems:
        return Check(f"extra {extra}", "missing", "; ".join(problems), line_of(extra))
    return Check(f"extra {extra}", "ok", ", ".join(f"{one.name} {installed(one.name)}" for one in needed))


def installed(name: str) -> str | None:
    """Returns the version of an installed distribution; None: there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def differing(pins: str) -> list[str]:
    """Returns each installed package that has another version than its line `name==version` says."""
    found = []
    for line in pins.splitlines():
        name, equal, version = line.partition("==")
        present = installed(canonicalize_name(name)) if equal else None
        if present is not None and present.partition("+")[0] != version.partition("+")[0]:
            found.append(f"{name} {present}, pinned {version}")
    return found


def _required(needed: list[Requirement]) -> Iterator[Check]:
    problems = faults(needed)
    for problem in problems:
        line = next(str(one) for one in needed if problem.startswith(f"{one.name} "))
        yield Check("packages", "broken", problem, pip_line(f"'{line}'"))
    if not problems:
        yield Check("packages", "ok", f"{len(needed)} of {len(needed)} as required")


def _pinned(path: Path) -> Iterator[Check]:
    if path.is_file():
        found = differing(text_files.read(path))
        more = f" and {len(found) - NOTED} more" if len(found) > NOTED else ""
        if found:
            text = "; ".join(found[:NOTED]) + more
            yield Check("pinned versions", "note", text, f"python -m pip install -r {path.name}")
        else:
            yield Check("pinned versions", "ok", f"as {path.name} has them")


def _applies(one: Requirement, extra: str) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": extra})
