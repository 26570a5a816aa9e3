"""Text and paths as DuckDB's SQL takes them: the only place where a path becomes part of a statement."""

from collections.abc import Iterable
from pathlib import Path

from ingest.core.errors import UsageError

_GLOB = "*?["


def text(value: str) -> str:
    """Returns a string as an SQL literal.

    Raises:
        UsageError: it is not UTF-8 (an undecodable byte of a file name).
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        shown = value.encode(errors="backslashreplace").decode()
        raise UsageError(f"{shown}: not UTF-8, which DuckDB cannot read; rename it") from error
    return "'" + value.replace("'", "''") + "'"


def pattern(path: Path) -> str:
    """Returns the pattern that matches this file alone: DuckDB takes every file name for a pattern.

    A bracketed `*`, `?` or `[` stands for itself. Nothing escapes a backslash, which the matching takes for a
    slash, so beside one of these signs it is refused. (For the same reason DuckDB fails to list a folder with
    such a sign beside one whose name begins with a backslash: it says that it cannot join the paths.)

    Raises:
        UsageError: the path has a backslash and one of `*?[`.
    """
    whole = str(path.absolute())
    if "\\" in whole and any(sign in whole for sign in _GLOB):
        raise UsageError(f"{whole}: DuckDB cannot name a path with a backslash and one of {_GLOB}; rename it")
    return "".join(f"[{sign}]" if sign in _GLOB else sign for sign in whole)


def parquet(paths: Iterable[Path], options: str = "") -> str:
    """Returns the `read_parquet(...)` of exactly these files; folders named `a=b` add no columns."""
    listed = ", ".join(text(pattern(path)) for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false{options and ', '}{options})"


def readable(paths: Iterable[Path]) -> str:
    """Returns the value of `allowed_paths` with which exactly these files can be read.

    DuckDB compares it with the pattern, then with the file that the pattern matches.
    """
    names = {name for path in paths for name in (pattern(path), str(path.absolute()))}
    return f"[{', '.join(text(name) for name in sorted(names))}]"
