"""The files of the page, in memory: bytes, type and digest.

What is not among them cannot be reached, whatever name a request has.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import replay.report

STATIC = Path(__file__).parent / "static"
REPORT = Path(replay.report.__file__).parent / "templates"
SHARED = ("report.css", "uplot/uPlot.iife.min.js", "uplot/uPlot.min.css")
"""Files of `twin report` that the page uses as they are."""
PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Suffixes of files that are served; what has another one, a licence or a note, is not."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent; `etag` is its SHA-256 in quotes, as HTTP wants it."""

    content: bytes
    media_type: str
    etag: str


@cache
def assets() -> Mapping[str, Asset]:
    """Returns every file by its name in the address, with `/` between folders."""
    own = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*")}
    shared = {Path(name).name: REPORT / name for name in SHARED}
    paths = {name: path for name, path in {**own, **shared}.items() if path.suffix in TYPES}
    return MappingProxyType({name: _asset(path) for name, path in sorted(paths.items())})


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
    return Asset(content, TYPES[path.suffix], f'"{digest}"')
