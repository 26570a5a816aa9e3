"""`dataset.toml`: what the files of a data set do not say themselves.

```toml
name = "my-links"                  # default: the folder's name
reader = "columns"                 # default: "columns" with table or [columns], else found by looking
table = "link_samples"             # for reader "columns"
licence = "MIT"
citation = "Who, where, when"
synthetic = false
start = 2024-03-01T00:00:00Z       # first instant of series without time stamps
interval_s = 21.0                  # their spacing
delimiter = ";"                    # between cells of a CSV; default a comma
timezone = "Europe/Berlin"         # of time stamps without a zone; default UTC
streams = 1                        # TCP connections of a measurement, where a file does not say
kind = "tcp"                       # of link samples, where a file does not say
gpus_per_node = 8                  # where a file counts nodes
gpu_model = "V100-32"              # of profiles, where a file does not say
assumptions = ["one sentence each"]
derived = "how the values were computed"   # where they were not measured
[sites]                            # site in the files -> domain
"us-east-1" = "virginia"
[columns]                          # canonical column -> column in the file
bandwidth_bps = "mbps"
[units]                            # canonical column -> unit in the file
bandwidth_bps = "Mb/s"
[values]                           # canonical column -> one value for all rows, where no column holds it
src = "paris"
[leave_out]                        # files that are not read (pattern) -> why; a * crosses folders
"results/*.json" = "computed from the measurements beside it"
[derive.NAME]                      # a set that is computed from this one, see ingest/derive.py
method = "available"
```
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ingest.core.config import suggestion
from ingest.core.errors import UsageError
from ingest.lake.schema import LINK_KINDS, TABLES

FILE_NAME = "dataset.toml"
DEFAULT_START = datetime(2000, 1, 1, tzinfo=UTC)
"""Where series begin that have no time stamps and no stated start: an obviously made-up instant."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Everything stated about one data set; the keys of `dataset.toml`."""

    name: str
    reader: str | None = None
    table: str | None = None
    title: str | None = None
    licence: str | None = None
    citation: str | None = None
    url: str | None = None
    synthetic: bool = False
    start: datetime | None = None
    interval_s: float | None = None
    timezone: str = "UTC"
    delimiter: str = ","
    streams: int | None = None
    kind: str | None = None
    gpus_per_node: int | None = None
    gpu_model: str | None = None
    assumptions: tuple[str, ...] = ()
    derived: str | None = None
    sites: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str | float] = field(default_factory=dict)
    leave_out: Mapping[str, str] = field(default_factory=dict)
    derive: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def left_out(self, name: str) -> str | None:
        """Why the file of this name inside the data set is not to be read; None if it is."""
        return next((why for pattern, why in self.leave_out.items() if fnmatchcase(name, pattern)), None)

    def start_or_default(self) -> datetime:
        """Where a series without time stamps begins, UTC."""
        return self.start or DEFAULT_START

    def to_json(self) -> dict[str, Any]:
        """What is stated, as JSON values; what is left open is left out."""
        given = {k: v for k, v in asdict(self).items() if v not in (None, (), {}, False)}
        if self.delimiter == ",":
            del given["delimiter"]
        if self.start:
            given["start"] = self.start.isoformat()
        return given | ({"assumptions": list(self.assumptions)} if self.assumptions else {})

    def digest(self) -> str:
        """Identity of these options: other options read the same files again."""
        stated = {key: value for key, value in self.to_json().items() if key not in ("leave_out", "derive")}
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


def options(folder: Path) -> DatasetOptions:
    """The options of the data set that lies in `folder`: its `dataset.toml`, else what is known of its name.

    Raises:
        UsageError: `dataset.toml` is not valid; names file and key.
    """
    path = folder / FILE_NAME
    stated = parse(_read(path), str(path)) if path.is_file() else {}
    name = stated.pop("name", None) or re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-.")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: name {name!r} must be letters, digits, '.', '_' and '-'")
    return DatasetOptions(**({**known(name), **stated} | {"name": name}))


def known(name: str) -> dict[str, Any]:
    """What is stated about a public data set of this name in `known.toml`; empty for others."""
    return dict(_known().get(name, {}))


def parse(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check the keys and types of a `dataset.toml`.

    Raises:
        UsageError: an unknown key, a value of the wrong type, or an unknown table, column or zone.
    """
    kinds = {f.name: f.type for f in fields(DatasetOptions)}
    for key, value in document.items():
        if key not in kinds:
            raise UsageError(f"{where} {key}: unknown key{suggestion(key, kinds)}")
        _check(key, value, where)
    stated = dict(document)
    if "assumptions" in stated:
        stated["assumptions"] = tuple(stated["assumptions"])
    if isinstance(stated.get("start"), datetime):
        stated["start"] = _utc(stated["start"])
    _check_table(stated, where)
    return stated


def with_name(given: DatasetOptions, name: str) -> DatasetOptions:
    """The same options under another name."""
    return replace(given, name=name)


_TYPES: dict[str, tuple[type, ...]] = {
    "synthetic": (bool,),
    "start": (datetime,),
    "interval_s": (int, float),
    "streams": (int,),
    "gpus_per_node": (int,),
    "assumptions": (list,),
    "sites": (dict,),
    "columns": (dict,),
    "units": (dict,),
    "values": (dict,),
    "leave_out": (dict,),
    "derive": (dict,),
}


_WANTED = {
    "synthetic": "true or false",
    "start": "a time, such as 2024-03-01T00:00:00Z",
    "interval_s": "a number of seconds above 0",
    "streams": "a whole number above 0",
    "gpus_per_node": "a whole number above 0",
    "delimiter": 'one character, such as ";"',
    "assumptions": 'a list of sentences: ["...", "..."]',
    "sites": 'a table of texts: [sites] and lines such as "us-east-1" = "virginia"',
    "columns": 'a table of texts: [columns] and lines such as bandwidth_bps = "mbps"; units go into [units]',
    "units": 'a table of texts: [units] and lines such as bandwidth_bps = "Mb/s"',
    "values": 'a table of texts and numbers: [values] and lines such as src = "paris"',
    "leave_out": 'a table of texts: [leave_out] and lines such as "*.json" = "why"',
    "derive": "tables [derive.NAME], the name of letters, digits, '.', '_' and '-'",
}
"""What each key takes, in words; others take a text."""


def _check(key: str, value: Any, where: str) -> None:
    wanted = _TYPES.get(key, (str,))
    good = isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
    if good and key in ("sites", "columns", "units", "leave_out"):
        good = all(isinstance(v, str) for v in value.values())
    if good and key == "values":
        good = all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in value.values())
    if good and key == "delimiter":
        good = len(value) == 1 and value.isascii() and value not in '\n\r"'
    if good and key == "derive":
        good = all(_NAME.fullmatch(name) and isinstance(recipe, dict) for name, recipe in value.items())
    if good and key == "assumptions":
        good = all(isinstance(v, str) for v in value)
    if good and key in ("interval_s", "streams", "gpus_per_node"):
        good = 0 < value < 1e9
    if not good:
        raise UsageError(f"{where} {key}: {value!r} is not {_WANTED.get(key, 'a text')}")


def _check_table(stated: Mapping[str, Any], where: str) -> None:
    table = stated.get("table")
    if table is not None and table not in TABLES:
        raise UsageError(f"{where} table: unknown table {table!r}{suggestion(table, TABLES)}")
    names = TABLES[table].names if table else sorted({n for schema in TABLES.values() for n in schema.names})
    for section in ("columns", "units", "values"):
        for column in stated.get(section, {}):
            if column not in names:
                raise UsageError(f"{where} {section}.{column}: unknown column{suggestion(column, names)}")
    _check_kind(stated, where)
    try:
        ZoneInfo(stated.get("timezone", "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"{where} timezone: unknown zone {stated['timezone']!r}") from error


def _check_kind(stated: Mapping[str, Any], where: str) -> None:
    """A kind of link samples is one of those that are known; other tables have kinds of their own."""
    given = {"kind": stated.get("kind")}
    if stated.get("table") == "link_samples":
        given["values.kind"] = stated.get("values", {}).get("kind")
    for key, kind in given.items():
        if kind is not None and kind not in LINK_KINDS:
            hint = suggestion(str(kind).lower(), LINK_KINDS)
            raise UsageError(f"{where} {key}: unknown kind of link samples {kind!r}{hint}")


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


@cache
def _known() -> dict[str, dict[str, Any]]:
    document = tomllib.loads((files("ingest.parsing") / "known.toml").read_text(encoding="utf-8"))
    return {name: parse(entry, f"known.toml {name}") for name, entry in document.items()}
