"""Files of settings, as they were written: the user's, the project's, and the line of every key."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

PROJECT_NAME = "twin.toml"
_TABLE = re.compile(r"^\s*\[\s*[\"']?([\w-]+)[\"']?\s*\]")
_KEY = re.compile(r"^\s*[\"']?([\w-]+)[\"']?(?:\s*\.\s*[\"']?([\w-]+)[\"']?)?\s*=")


class SettingFile(NamedTuple):
    """A file of settings: its values, and the line of each key (`("replay", "engine")`)."""

    path: Path
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int]

    def where(self, *key: str) -> str:
        """Returns `FILE:LINE` of a key, of its table, or of the file, whichever is known."""
        line = self.lines.get(key) or self.lines.get(key[:1])
        return f"{self.path}:{line}" if line else str(self.path)


def user_path() -> Path:
    """Returns where the user's file lies, if there is one (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "twin" / "config.toml"


def project_path(start: Path) -> Path | None:
    """Returns the nearest `twin.toml` in `start` and the folders above it; None if there is none."""
    for folder in (start, *start.parents):
        if (found := folder / PROJECT_NAME).is_file():
            return found
    return None


def paths() -> list[Path]:
    """Returns the files that are there, the weaker first."""
    project = project_path(Path.cwd())
    return [path for path in (user_path(), project) if path is not None and path.is_file()]


def read(path: Path) -> SettingFile:
    """Returns a file of settings.

    Raises:
        UsageError: it cannot be read or is not TOML.
    """
    from ingest.core import safe_toml, text_files

    return SettingFile(path, safe_toml.load(path), lines_of(text_files.read(path)))


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Returns the line on which each table and each key of a table begins, as far as two levels go."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if head := _TABLE.match(line):
            table = (head[1],)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            path = (*table, *(part for part in key.groups() if part))
            found.setdefault(path, number)
            found.setdefault(path[:1], number)
    return found
