"""Spoilt copies of a good file: what loggers, editors, transfers and enemies make of it.

`mutants` gives the corpus of one format, the same every time. Text is spoilt at its numbers, dates and cells,
JSON at its nodes as well, Parquet at its columns, and every file at its bytes and in archives.
"""

import gzip
import io
import json
import os
import pickle
import random
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NUMBERS = {
    "NaN": "NaN",
    "infinite": "inf",
    "minus infinite": "-Infinity",
    "negative": "-1",
    "unit suffix": "5 ms",
    "per cent": "50%",
    "decimal comma": "1,5",
    "thousands separator": "1,234.5",
    "empty cell": "",
    "word": "fast",
    "beyond a double": "1e400",
    "denormal": "5e-324",
    "huge integer": "9" * 5000,
    "64 bits and one": str(2**64),
    "most negative": str(-(2**63)),
    "half": "0.5",
    "underscore": "1_000",
    "hexadecimal": "0x10",
    "look-alike digits": "\u0663\u0664",
    "full-width digits": "\uff11\uff12",
    "minus sign of print": "\u22125",
    "null": "null",
    "text in quotes": '"7"',
    "truth": "true",
    "list": "[1]",
    "formula": "=1+1",
    "epoch in ms": "1700000000000",
    "epoch in ns": "1700000000000000000",
    "year 9999 as epoch": "253402300799",
}
TIMES = {
    "DST twice": "2024-10-27 02:30:00",
    "DST never": "2024-03-31 02:30:00",
    "year 1969": "1969-12-31T23:59:59Z",
    "year 2106": "2106-02-07T06:28:16Z",
    "year 9999": "9999-12-31T23:59:59Z",
    "leap second": "2016-12-31T23:59:60Z",
    "month 13": "2024-13-01 00:00:00",
    "far zone": "2024-01-01T00:00:00+99:99",
    "date alone": "2024-01-01",
}
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_TIME = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")
_CELL = 10**6


@dataclass(frozen=True)
class Mutant:
    """One spoilt file; `packed` is the ending that its name gets."""

    what: str
    content: bytes
    packed: str = ""


class _Code:
    """A pickle of this runs a command when it is loaded in the plain way."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("exit 1",)


def mutants(content: bytes) -> list[Mutant]:
    """The corpus of the format that `content` is a good file of, without those that change nothing."""
    made = dict(_bytes(content))
    text = _as_text(content)
    if text is not None:
        made |= {what: spoilt.encode("utf-8", "surrogatepass") for what, spoilt in _texts(text)}
        made |= {f"JSON {what}": spoilt.encode() for what, spoilt in _documents(text)}
    if content.startswith(b"PAR1"):
        made |= {f"Parquet {what}": spoilt for what, spoilt in _parquets(content)}
    loose = [Mutant(what, spoilt) for what, spoilt in made.items() if spoilt != content]
    return [*loose, *_archives(content)]


def _as_text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def _bytes(content: bytes) -> Iterator[tuple[str, bytes]]:
    """What can happen to any file."""
    size, middle = len(content), len(content) // 2
    yield from [("empty", b""), ("one byte", content[:1]), ("blank", b" \n"), ("zeros", b"\0" * 4096)]
    for share in (1, 10, 25, 50, 75, 90, 99):
        yield f"cut at {share} %", content[: max(1, size * share // 100)]
    yield from [("last byte lost", content[:-1]), ("first byte lost", content[1:])]
    yield from [("twice", content * 2), ("backwards", content[::-1]), ("tail", content + b"\xff\0\xfe tail")]
    yield "byte order mark", b"\xef\xbb\xbf" + content
    yield "two byte order marks", b"\xef\xbb\xbf" * 2 + content
    for what, piece in (("NUL bytes", b"\0\0\0"), ("invalid UTF-8", b"\xc3\x28\xff"), ("escape", b"\x1b[2J")):
        yield what, content[:middle] + piece + content[middle:]
    yield "surrogates", content[:middle] + b"\xed\xa0\x80" + content[middle:]
    yield "zeroed middle", content[:middle] + bytes(min(64, size - middle)) + content[middle + 64 :]
    yield "long cell", content[:middle] + b"x" * _CELL + content[middle:]
    yield "long number", content[:middle] + b"9" * _CELL + content[middle:]
    yield "long line", content + b",".join([b"1"] * (_CELL // 2)) + b"\n"
    yield from [("deep lists", b"[" * 100_000), ("deep objects", b'{"a":' * 100_000)]
    yield "deep tail", content.rstrip() + b"[" * 100_000
    yield from [("another format", b"a,b\n1,2\n"), ("JSON object", b"{}"), ("JSON list", b"[[],{},null]")]
    yield from [("JSON number", b"1e999"), ("gzip under this name", gzip.compress(content, mtime=0))]
    yield "pickle with code", pickle.dumps(_Code())
    yield "pickle that asks for memory", b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"."
    yield "Parquet marks alone", b"PAR1" + bytes(8) + b"\xff\xff\xff\x7fPAR1"
    chance = random.Random(7)
    for number in range(8):
        at = chance.randrange(size)
        yield f"byte {number}", content[:at] + bytes([content[at] ^ (1 << number)]) + content[at + 1 :]


def _texts(text: str) -> Iterator[tuple[str, str]]:
    """What can happen to text: to its encoding, lines, quotes, cells, numbers and times."""
    yield from [("CRLF", text.replace("\n", "\r\n")), ("CR only", text.replace("\n", "\r"))]
    yield "blank lines", text.replace("\n", "\n\n\n")
    yield "half surrogate", text[: len(text) // 2] + "\ud800" + text[len(text) // 2 :]
    rows = text.split("\n")
    yield from [("header only", rows[0] + "\n"), ("no header", "\n".join(rows[1:]))]
    yield "header twice", "\n".join([rows[0], *rows])
    yield "columns of one name", "\n".join([re.sub(r"[^,]+", "x", rows[0]), *rows[1:]])
    yield "a name twice", "\n".join([rows[0] + "," + rows[0].split(",")[0], *rows[1:]])
    yield "extra column", "\n".join([rows[0], *(row + ",1" for row in rows[1:])])
    yield "missing column", "\n".join([rows[0], *(row.rpartition(",")[0] for row in rows[1:])])
    yield from [("semicolons", text.replace(",", ";")), ("tabs", text.replace(",", "\t"))]
    yield from [
        ("stray quote", text.replace(",", ',"', 3)),
        ("unclosed quote", text + '"open, never closed\n'),
    ]
    yield from [("single quotes", text.replace('"', "'")), ("curly quotes", text.replace('"', "\u201d"))]
    yield from [("upper case", text.upper()), ("no break space", text.replace(" ", "\u00a0"))]
    yield "rows twice", "\n".join([*rows[:1], *rows[1:], *rows[1:]])
    yield "rows turned", "\n".join([*rows[:1], *reversed(rows[1:])])
    for what, value in NUMBERS.items():
        yield what, _replaced(_NUMBER, text, value, 2)
        yield f"{what} at the end", _replaced(_NUMBER, text, value, 10**9)
        if what in ("NaN", "infinite", "negative", "empty cell", "huge integer"):
            yield f"{what} everywhere", _replaced(_NUMBER, text, value, 1)
    for what, value in TIMES.items():
        yield what, _replaced(_TIME, text, value, 1)
    yield "negative by sign", re.sub(r"(?<=[\s,:\[])(?=\d)", "-", text)


def _replaced(pattern: re.Pattern[str], text: str, value: str, every: int) -> str:
    """One in `every` matches replaced, the last one always; numbers that are part of a time stay."""
    times = [match.span() for match in _TIME.finditer(text)] if pattern is _NUMBER else []
    spans = [m.span() for m in pattern.finditer(text) if not any(a <= m.start() < b for a, b in times)]
    pieces, end = [], 0
    for start, stop in spans[::-1][::every][::-1]:
        pieces += [text[end:start], value]
        end = stop
    return "".join([*pieces, text[end:]])


def _documents(text: str) -> Iterator[tuple[str, str]]:
    """What can happen to a JSON document: at every depth a node of another kind, keys lost or twice."""
    try:
        document = json.loads(text)
    except ValueError:
        return
    kinds = {"null": None, "list": [], "object": {}, "text": "x", "truth": True, "NaN": float("nan")}
    kinds |= {"long integer": 10**4000, "list in list": [[[]]]}
    for depth in range(6):
        for what, value in kinds.items():
            yield f"{what} at depth {depth}", json.dumps(_at_depth(document, depth, lambda _, v=value: v))
        yield f"keys lost at depth {depth}", json.dumps(_at_depth(document, depth, _without_a_key))
    yield "keys twice", re.sub(r'("[^"]*")(\s*:\s*)', r"\1: null, \1\2", text)
    yield "keys twice, the last one null", re.sub(r'("[^"]*")(\s*:\s*)([-\d.]+)', r"\1\2\3, \1: null", text)
    yield "trailing comma", text.replace("}", ",}")
    yield "texts for numbers", re.sub(r"(?<=: )(-?\d[\d.]*)", r'"\1"', text)


def _without_a_key(node: Any) -> Any:
    if isinstance(node, dict):
        return dict(list(node.items())[1:])
    return node[1:] if isinstance(node, list) else node


def _at_depth(node: Any, depth: int, change: Callable[[Any], Any]) -> Any:
    """A copy with every other node of this depth changed, the first one among them."""
    if depth == 0:
        return change(node)
    if isinstance(node, dict):
        return {
            k: _at_depth(v, depth - 1, change) if n % 2 == 0 else v for n, (k, v) in enumerate(node.items())
        }
    if isinstance(node, list):
        return [_at_depth(v, depth - 1, change) if n % 2 == 0 else v for n, v in enumerate(node)]
    return node


def _parquets(content: bytes) -> Iterator[tuple[str, bytes]]:
    """What can happen to the columns of a Parquet file."""
    table = pq.read_table(io.BytesIO(content))
    for at, name in enumerate(table.column_names):
        changed = {
            "lost": table.remove_column(at),
            "null": table.set_column(at, name, pa.nulls(len(table), table.column(at).type)),
            "text": table.set_column(at, name, pa.array(["x"] * len(table))),
            "infinite": table.set_column(at, name, pa.array([float("-inf")] * len(table))),
            "lists": table.set_column(at, name, pa.array([[1]] * len(table))),
            "large": table.set_column(at, name, pa.array([2**63 - 1] * len(table))),
        }
        for what, spoilt in changed.items():
            held = io.BytesIO()
            pq.write_table(spoilt, held)
            yield f"{name} {what}", held.getvalue()


def _archives(content: bytes) -> Iterator[Mutant]:
    """The good file in archives that are cut, lie, or mean harm."""
    packed = gzip.compress(content, mtime=0)
    tar = _tar(("../../escaped.csv", content)), _tar(("/tmp/escaped.csv", content)), _tar(("ok", content))
    yield Mutant("good gzip", packed, ".gz")
    yield from (Mutant(f"gzip cut at {n} %", packed[: len(packed) * n // 100], ".gz") for n in (1, 50, 99))
    yield Mutant("gzip with a wrong checksum", packed[:-8] + b"\0" * 8, ".gz")
    yield Mutant("plain under the name of gzip", content, ".gz")
    yield Mutant("gzip of 16 MiB of zeros", gzip.compress(bytes(16 * 1024**2), mtime=0), ".gz")
    yield Mutant("gzip in gzip", gzip.compress(packed, mtime=0), ".gz.gz")
    yield from [Mutant("tar path up", tar[0], ".tar.gz"), Mutant("tar path from the root", tar[1], ".tar.gz")]
    yield from (Mutant(f"tar cut at {n} %", tar[2][: len(tar[2]) * n // 100], ".tar.gz") for n in (10, 90))
    yield Mutant("tar link", _tar(("link", None)), ".tar.gz")
    yield from [Mutant("no zip", content, ".zip"), Mutant("no xz", content, ".xz")]


def _tar(*members: tuple[str, bytes | None]) -> bytes:
    """A tar of files; one without content is a link to the outside."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return held.getvalue()
