"""Writes `requirements.lock`: every pin of `constraints.txt` with the SHA-256 of its files on the index.

    python .ci/lock.py [FOLDER ...]

    pip install --require-hashes --requirement requirements.lock
    pip install --no-deps .

The index is the one that pip uses (`PIP_INDEX_URL`). Kept are source archives and wheels for CPython 3.11 to
3.13 on Linux and macOS. Wheels of a pin in a FOLDER stand in for those of the index: torch is locked to its
build for CPUs alone, which needs no package of CUDA.
"""

import hashlib
import html.parser
import os
import re
import sys
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pip._internal.models.index import PyPI

ROOT = Path(__file__).resolve().parents[1]
INDEX = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
WHEEL = re.compile(
    r".+-(py3|py2\.py3|cp3(11|12|13)|cp3\d+-abi3)[-.].*(any|manylinux.*|linux_x86_64|macosx.*)\.whl"
)
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)")


class Links(html.parser.HTMLParser):
    """Collects file names and SHA-256 of a page of the index."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Takes the target of one link."""
        url, _, fragment = (dict(attrs).get("href") or "").partition("#sha256=")
        if tag == "a" and fragment:
            self.files[urllib.parse.unquote(url.rsplit("/", 1)[-1])] = fragment


def normal(name: str) -> str:
    """Returns the name of a package as the index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version_of(file: str) -> str:
    """Returns the version in the name of a wheel or a source archive."""
    if file.endswith(".whl"):
        return file.split("-")[1]
    return re.sub(r"\.(tar\.gz|zip)$", "", file).rpartition("-")[2]


def hashes(name: str, version: str, folders: list[Path]) -> list[str]:
    """Returns the SHA-256 of the files of one pin, sorted."""
    pattern = f"{name.replace('-', '_')}-{version}*.whl"
    local = [path.read_bytes() for folder in folders for path in folder.glob(pattern)]
    if local:
        return sorted(hashlib.sha256(data).hexdigest() for data in local)
    links = Links()
    with urllib.request.urlopen(f"{INDEX}/{normal(name)}/", timeout=60) as page:
        links.feed(page.read().decode())
    kept = {
        digest
        for file, digest in links.files.items()
        if version_of(file) == version and (WHEEL.fullmatch(file) or not file.endswith(".whl"))
    }
    return sorted(kept)


def main() -> int:
    """Writes the file; returns 1 if a pin has no file."""
    folders = [Path(argument) for argument in sys.argv[1:]]
    pins = [
        found for line in (ROOT / "constraints.txt").read_text().splitlines() if (found := PIN.match(line))
    ]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pin: hashes(pin["name"], pin["version"], folders), pins))
    lines = ["# Written by `python .ci/lock.py` from constraints.txt.\n"]
    for pin, digests in zip(pins, found, strict=True):
        lines.append(" \\\n    ".join([pin[0], *(f"--hash=sha256:{digest}" for digest in digests)]) + "\n")
    (ROOT / "requirements.lock").write_text("".join(lines))
    missing = [pin[0] for pin, digests in zip(pins, found, strict=True) if not digests]
    if missing:
        print(f"no files on the index: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
