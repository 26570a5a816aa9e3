"""What a file looks like, from its beginning: form, delimiter, lines above the header, columns or keys."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.core import safe_json
from ingest.core.terminal import clipped
from ingest.mapping.json_paths import rows, steps
from ingest.mapping.text_rows import PARQUET, by_line, is_json
from ingest.parsing.source import BOM

_DELIMITERS = (",", ";", "\t", "|")
_LINES, _SKIPPED = 60, 20
"""Lines that are looked at, and lines that may stand above a header."""
_DEEP = 6
_SHOWN = 8
"""Names that a sentence lists."""
_KEY = re.compile(rb'"((?:[^"\\]|\\.){1,60})"\s*:')


@dataclass(frozen=True, slots=True)
class Look:
    """The form of a file, as far as its beginning shows it.

    form: CSV, Parquet, JSON, NDJSON, text or binary. rows: the path to the rows of JSON, or an empty text.
    sample: cells of one row, in the order of the names.
    """

    form: str
    names: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()
    delimiter: str = ","
    skip_lines: int = 0
    rows: str = ""

    def sentence(self) -> str:
        """Returns the look in a few words."""
        listed = ", ".join(clipped(name, 24) for name in self.names[:_SHOWN])
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        if self.form == "CSV":
            mark = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[self.delimiter]
            lines = "1 line" if self.skip_lines == 1 else f"{self.skip_lines} lines"
            above = f", {lines} above its header" if self.skip_lines else ""
            return f"a CSV by {mark}{above} with columns {listed}{more}"
        if self.form in ("JSON", "NDJSON"):
            where = f" at {self.rows}" if self.rows else ""
            return f"{self.form} with keys {listed}{more}{where}"
        return {
            "Parquet": "a Parquet file",
            "text": f"text that begins {self.names[0]!r}" if self.names else "text",
        }.get(self.form, "no text")


def look(head: bytes, whole: bytes | None = None) -> Look:
    """Returns the look of a file with this beginning; `whole` is all of it, where it is at hand."""
    if head.startswith(PARQUET):
        return Look("Parquet")
    if b"\0" in head:
        return Look("binary")
    if is_json(head):
        return _json(head, whole)
    text = head.removeprefix(BOM).decode("utf-8", "replace")
    if text.count("\ufffd") > len(text) // 20:
        return Look("binary")
    lines = text.splitlines()[:_LINES]
    found = max((_csv(lines, mark) for mark in _DELIMITERS), key=lambda f: len(f.names), default=Look("text"))
    if len(found.names) > 1:
        return found
    return Look("text", tuple(clipped(line, 60) for line in lines if line.strip())[:1])


def _csv(lines: Sequence[str], mark: str) -> Look:
    """The look with this delimiter; without names if the lines do not agree on a number of cells."""
    try:
        cells = [next(csv.reader([line], delimiter=mark), []) for line in lines]
    except csv.Error:
        return Look("CSV", delimiter=mark)
    counts = Counter(len(row) for row in cells[:-1] or cells if len(row) > 1)
    if not counts:
        return Look("CSV", delimiter=mark)
    width, often = counts.most_common(1)[0]
    at = next((n for n, row in enumerate(cells) if len(row) == width), 0)
    if often * 2 < len([row for row in cells if row]) or at > _SKIPPED:
        return Look("CSV", delimiter=mark)
    names = tuple(name.strip() for name in cells[at])
    sample = next((row for row in cells[at + 1 :] if len(row) == width), [])
    return Look("CSV", names, tuple(sample), mark, at)


def _json(head: bytes, whole: bytes | None) -> Look:
    lines = by_line(head)
    try:
        text = head.removeprefix(BOM).lstrip()
        found = safe_json.parsed(text.partition(b"\n")[0] if lines else (whole or head).removeprefix(BOM))
    except ValueError:
        keys = dict.fromkeys(key.decode("utf-8", "replace") for key in _KEY.findall(head))
        return Look("JSON", tuple(keys))
    way = max(_lists(found, "", 0), key=lambda path: (path[1], path[0].count("[]")), default=("", 0))[0]
    row = next(iter(rows(found, steps(way))), None) if way else None
    node = row.node if row is not None else found
    cells = dict(_cells(node, ""))
    if row is not None and not isinstance(found, list):
        cells |= _above(found, way)
    return Look(
        "NDJSON" if lines else "JSON", tuple(cells), tuple(cells.values()), rows=way if way != "[]" else ""
    )


def _lists(node: Any, path: str, depth: int) -> Iterator[tuple[str, int]]:
    """Paths to lists of objects or of lists, with their lengths; the first element stands for all."""
    if depth > _DEEP:
        return
    if isinstance(node, list) and node and isinstance(node[0], dict | list):
        yield f"{path}[]", len(node)
        yield from _lists(node[0], f"{path}[]", depth + 1)
    elif isinstance(node, dict):
        for key, value in node.items():
            name = key if re.fullmatch(r"[^.\[\]*@\"]+", key) else f'"{key}"'
            yield from _lists(value, f"{path}.{name}" if path else name, depth + 1)


def _cells(node: Any, before: str) -> Iterator[tuple[str, str]]:
    """Paths below a row with their values as text."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        path = f"{before}.{key}" if before else str(key)
        if isinstance(value, dict):
            yield from _cells(value, path)
        elif not isinstance(value, list):
            yield path, "" if value is None else str(value)


def _above(document: Any, way: str) -> dict[str, str]:
    """Plain values on the way to the rows, which a path from the top reaches."""
    found: dict[str, str] = {}
    node, at = document, ""
    for step in steps(way):
        if isinstance(node, dict):
            found |= {f"{at}.{k}": str(v) for k, v in node.items() if not isinstance(v, dict | list)}
            node, at = node.get(step), f"{at}.{step}"
        elif isinstance(node, list) and node:
            node, at = node[0], f"{at}[]"
    return found
