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
[derive.NAME]                      # a set computed from this one, see ingest/pipeline/derived_datasets.py
method = "available"
```
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from ingest.core import config, safe_toml
from ingest.core.config import Config, Expected, suggestion
from ingest.core.names import RULE, Name
from ingest.core.terminal import shown
from ingest.lake.schema import LINK_KINDS, TABLES

FILE_NAME = "dataset.toml"
DEFAULT_START = datetime(2000, 1, 1, tzinfo=UTC)
"""First instant of series without time stamps and stated start: an obviously arbitrary one."""
Routing = Literal["shortest", "ecmp"]


def _utc(moment: datetime | None) -> datetime | None:
    if moment is None or moment.tzinfo is None:
        return moment and moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC)


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown zone {shown(name)}") from error
    return name


def _one_of(name: Any, known: tuple[str, ...] | Mapping[str, Any], what: str) -> Any:
    """The name itself; ValueError with a suggestion if it is stated and not known."""
    if name is not None and name not in known:
        raise ValueError(f"unknown {what} {shown(name)}{suggestion(str(name).lower(), known)}")
    return name


def _column(name: str, info: ValidationInfo) -> str:
    table = info.data.get("table")
    names = TABLES[table].names if table else sorted({n for schema in TABLES.values() for n in schema.names})
    if name not in names:
        raise ValueError(f"unknown column{suggestion(name, names)}")
    return name


def _kind(kind: Any) -> Any:
    return _one_of(kind, LINK_KINDS, "kind of link samples")


def _kind_of_values(values: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Other tables than link samples have kinds of their own."""
    if info.data.get("table") == "link_samples":
        _kind(values.get("kind"))
    return values


def _not_itself(derive: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    if info.data.get("name") in derive:
        raise ValueError("a set cannot be derived from itself")
    return derive


Text = Annotated[str | None, Expected("a text")]
Count = Annotated[int | None, Field(gt=0, lt=1e9), Expected("a whole number above 0 and below 1e9")]
Column = Annotated[str, AfterValidator(_column)]


def _table(section: str, line: str) -> Expected:
    return Expected(f"a table of texts: [{section}] and lines such as {line}")


class DerivedSet(Config):
    """The recipe of a set that is computed from another one; see `ingest.pipeline.derived_datasets`."""

    model_config = ConfigDict(strict=True)

    method: Annotated[Literal["available"], Expected('"available"')]
    routing: Annotated[Routing, BeforeValidator(lambda name: _one_of(name, get_args(Routing), "routing"))] = (
        "shortest"
    )
    nodes: Annotated[
        tuple[str, ...], Field(strict=False, min_length=2), Expected("a list of two or more names")
    ] = ()


class DatasetOptions(Config):
    """Everything stated about one data set; the keys of `dataset.toml`."""

    model_config = ConfigDict(strict=True)

    name: Annotated[Name, Expected(f"a name: {RULE}")]
    reader: Text = None
    table: Annotated[Text, AfterValidator(lambda name: _one_of(name, TABLES, "table"))] = None
    title: Text = None
    licence: Text = None
    citation: Text = None
    url: Text = None
    synthetic: Annotated[bool, Expected("true or false")] = False
    start: Annotated[
        datetime | None, AfterValidator(_utc), Expected("a time, such as 2024-03-01T00:00:00Z")
    ] = None
    interval_s: Annotated[
        int | float | None, Field(ge=1e-9, lt=1e9), Expected("a number of seconds, 1e-9 to 1e9")
    ] = None
    timezone: Annotated[str, AfterValidator(_zone), Expected("a text")] = "UTC"
    delimiter: Annotated[
        str, Field(pattern=r'^[^\n\r"\x{80}-\x{10FFFF}]$'), Expected('one character, such as ";"')
    ] = ","
    streams: Count = None
    kind: Annotated[Text, AfterValidator(_kind)] = None
    gpus_per_node: Count = None
    gpu_model: Text = None
    assumptions: Annotated[
        tuple[str, ...], Field(strict=False), Expected('a list of sentences: ["...", "..."]')
    ] = ()
    derived: Text = None
    sites: Annotated[dict[str, str], _table("sites", '"us-east-1" = "virginia"')] = Field(default={})
    columns: Annotated[
        dict[Column, str], _table("columns", 'bandwidth_bps = "mbps"; units go into [units]')
    ] = Field(default={})
    units: Annotated[dict[Column, str], _table("units", 'bandwidth_bps = "Mb/s"')] = Field(default={})
    values: Annotated[
        dict[Column, str | int | float],
        AfterValidator(_kind_of_values),
        Expected('a table of texts and numbers: [values] and lines such as src = "paris"'),
    ] = Field(default={})
    leave_out: Annotated[dict[str, str], _table("leave_out", '"*.json" = "why"')] = Field(default={})
    derive: Annotated[
        dict[Name, DerivedSet],
        AfterValidator(_not_itself),
        Expected(f"tables [derive.NAME]; {RULE}"),
    ] = Field(default={})

    def left_out(self, name: str) -> str | None:
        """Returns why the file of this name inside the data set is not read; None if it is."""
        return next((why for pattern, why in self.leave_out.items() if fnmatchcase(name, pattern)), None)

    def start_or_default(self) -> datetime:
        """Returns the first instant of series without time stamps, UTC."""
        return self.start or DEFAULT_START

    def to_json(self) -> dict[str, Any]:
        """Returns what is stated, as JSON values; keys left open are absent."""
        stated = self.model_dump(exclude_unset=True)
        given = {k: v for k, v in stated.items() if v not in (None, (), {}, False)}
        if self.delimiter == ",":
            given.pop("delimiter", None)
        if self.start:
            given["start"] = self.start.isoformat()
        if self.assumptions:
            given["assumptions"] = list(self.assumptions)
        return given | {"timezone": self.timezone}

    def digest(self) -> str:
        """Returns the identity of these options: under other options, files are read again."""
        stated = {key: value for key, value in self.to_json().items() if key not in ("leave_out", "derive")}
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


def options(folder: Path) -> DatasetOptions:
    """Returns the options of the data set in `folder`: its `dataset.toml` over what is known of its name.

    Raises:
        UsageError: `dataset.toml` is not valid; names file and key.
    """
    path = folder / FILE_NAME
    stated = safe_toml.load(path) if path.is_file() else {}
    fallback = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-.")[:64]
    name = stated.get("name") or fallback
    document = {**(known(name) if isinstance(name, str) else {}), **stated, "name": name}
    return config.parse(DatasetOptions, document, source=str(path))


def known(name: str) -> Mapping[str, Any]:
    """Returns what `known.toml` states about a public data set of this name; empty for others."""
    return _known().get(name, {})


@cache
def _known() -> dict[str, dict[str, Any]]:
    return safe_toml.load(Path(__file__).with_name("known.toml"))
