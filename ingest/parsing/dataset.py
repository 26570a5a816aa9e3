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
skip_lines = 3                     # lines of a CSV before its header
decimal = ","                      # mark of fractions; default a point
time_format = "%d.%m.%Y %H:%M"     # of time stamps that are not ISO 8601
rows = "links[].samples[]"         # where the rows of a JSON document lie
accept = ["util.constant"]         # what looks like a wrong mapping and is meant, COLUMN.FAULT
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
[time]                             # of a column that counts, where there are no dates
mode = "elapsed"                   # since start, or "interval": since the row before
unit = "s"
start = 2024-03-01T00:00:00Z       # default: start above
[melt]                             # of a wide table: columns whose names say what is in their cells
columns = "(?P<src>[a-z]+)->(?P<dst>[a-z]+)"
value = "bandwidth_bps"            # or [melt.values] for the words of a group (?P<measure>...)
[leave_out]                        # files that are not read (pattern) -> why; a * crosses folders
"results/*.json" = "computed from the measurements beside it"
[derive.NAME]                      # a set computed from this one, see ingest/pipeline/derived_datasets.py
method = "available"
[[tables]]                         # of several tables in one file, each with its mapping over the keys above
table = "gpu_samples"
columns = {ts = "time", power_w = "watts"}
```
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from ingest.core import config, safe_toml
from ingest.core.config import Config, Expected
from ingest.core.names import RULE
from ingest.core.ranges import Name
from ingest.core.terminal import shown
from ingest.lake.schema import LINK_KINDS
from ingest.lake.undated import DEFAULT_START
from ingest.parsing.mapping_keys import Accepted, Instant, MappingKeys, TableMapping, Text, one_of, texts

FILE_NAME = "dataset.toml"
MAPPING_RULES = 2
"""Raised with every change of what rows a mapping makes: files that are mapped are then read again."""
Routing = Literal["shortest", "ecmp"]


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown zone {shown(name)}") from error
    return name


def _kind(kind: Any) -> Any:
    return one_of(kind, LINK_KINDS, "kind of link samples")


def _not_itself(derive: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    if info.data.get("name") in derive:
        raise ValueError("a set cannot be derived from itself")
    return derive


Count = Annotated[int | None, Field(gt=0, lt=1e9), Expected("a whole number above 0 and below 1e9")]


class DerivedSet(Config):
    """The recipe of a set that is computed from another one; see `ingest.pipeline.derived_datasets`."""

    model_config = ConfigDict(strict=True)

    method: Annotated[Literal["available"], Expected('"available"')]
    routing: Annotated[Routing, BeforeValidator(lambda name: one_of(name, get_args(Routing), "routing"))] = (
        "shortest"
    )
    nodes: Annotated[
        tuple[str, ...], Field(strict=False, min_length=2), Expected("a list of two or more names")
    ] = ()


class DatasetOptions(MappingKeys):
    """Everything stated about one data set; the keys of `dataset.toml`."""

    model_config = ConfigDict(strict=True)

    name: Annotated[Name, Expected(f"a name: {RULE}")]
    reader: Text = None
    title: Text = None
    licence: Text = None
    citation: Text = None
    url: Text = None
    synthetic: Annotated[bool, Expected("true or false")] = False
    start: Instant = None
    interval_s: Annotated[
        int | float | None, Field(ge=1e-9, lt=1e9), Expected("a number of seconds, 1e-9 to 1e9")
    ] = None
    timezone: Annotated[str, AfterValidator(_zone), Expected("a text")] = "UTC"
    delimiter: Annotated[
        str, Field(pattern=r'^[^\n\r"\x{80}-\x{10FFFF}]$'), Expected('one character, such as ";"')
    ] = ","
    skip_lines: Annotated[int, Field(ge=0, le=1000), Expected("a number of lines, 0 to 1000")] = 0
    decimal: Annotated[Literal[".", ","], Expected('"." or ","')] = "."
    accept: Accepted = ()
    streams: Count = None
    kind: Annotated[Text, AfterValidator(_kind)] = None
    gpus_per_node: Count = None
    gpu_model: Text = None
    assumptions: Annotated[
        tuple[str, ...], Field(strict=False), Expected('a list of sentences: ["...", "..."]')
    ] = ()
    derived: Text = None
    sites: Annotated[dict[str, str], texts("sites", '"us-east-1" = "virginia"')] = Field(default={})
    leave_out: Annotated[dict[str, str], texts("leave_out", '"*.json" = "why"')] = Field(default={})
    derive: Annotated[
        dict[Name, DerivedSet],
        AfterValidator(_not_itself),
        Expected(f"tables [derive.NAME]; {RULE}"),
    ] = Field(default={})
    tables: Annotated[
        tuple[TableMapping, ...],
        Field(strict=False, max_length=16),
        Expected("tables [[tables]], 16 at most"),
    ] = ()

    @property
    def maps(self) -> bool:
        """True if the files are tables that are described here, and not of a format that says all itself."""
        return bool(self.table or self.columns) or self._turns

    @property
    def renames(self) -> bool:
        """True if a table is not taken as it stands: then a mistake of the mapping must not pass."""
        return bool(self.columns or self.units) or self._turns

    @property
    def _turns(self) -> bool:
        form = self.rows or self.melt or self.time or self.time_format or self.tables
        return bool(form or self.skip_lines or self.decimal != ".")

    def each_table(self) -> tuple["DatasetOptions", ...]:
        """Returns the options of every table in a file: these, or these under each of `[[tables]]`."""
        given = ({name: getattr(one, name) for name in one.model_fields_set} for one in self.tables)
        return tuple(self.model_copy(update=one | {"tables": ()}) for one in given) or (self,)

    def left_out(self, name: str) -> str | None:
        """Returns why the file of this name inside the data set is not read; None if it is."""
        return next((why for pattern, why in self.leave_out.items() if fnmatchcase(name, pattern)), None)

    def start_or_default(self) -> datetime:
        """Returns the first instant of series without time stamps, UTC."""
        return self.start or DEFAULT_START

    def to_json(self) -> dict[str, Any]:
        """Returns what is stated, as JSON values; keys left open are absent."""
        stated = self.model_dump(exclude_unset=True)
        given = {k: _plain(v) for k, v in stated.items() if v not in (None, (), {}, False)}
        if self.delimiter == ",":
            given.pop("delimiter", None)
        return given | {"timezone": self.timezone}

    def digest(self) -> str:
        """Returns the identity of these options: under other options, files are read again."""
        stated = {key: value for key, value in self.to_json().items() if key not in ("leave_out", "derive")}
        if self.renames:
            stated["rules"] = MAPPING_RULES
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime) else value


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
