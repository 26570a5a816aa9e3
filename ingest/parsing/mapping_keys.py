"""Keys of `dataset.toml` that map the tables of a stranger: columns, units, rows of JSON, melting, time."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo

from ingest.core.config import Config, Expected, suggestion
from ingest.core.terminal import shown
from ingest.lake.schema import LINK_KINDS, TABLES

FAULTS = ("range", "constant", "one-way", "names", "undated", "shared")
"""What `accept` can say of a column: see `ingest.mapping.plausible`."""
MEASURE = "measure"
"""Group of a melting pattern that says which quantity a column holds."""


def utc(moment: datetime | None) -> datetime | None:
    """The instant in UTC; without a zone it is UTC."""
    if moment is None or moment.tzinfo is None:
        return moment and moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC)


def one_of(name: Any, known: tuple[str, ...] | Mapping[str, Any], what: str) -> Any:
    """The name itself; ValueError with a suggestion if it is stated and not known."""
    if name is not None and name not in known:
        raise ValueError(f"unknown {what} {shown(name)}{suggestion(str(name).lower(), known)}")
    return name


def _every_column() -> list[str]:
    return sorted({name for schema in TABLES.values() for name in schema.names})


def _column(name: str, info: ValidationInfo) -> str:
    table = info.data.get("table")
    names = TABLES[table].names if table else _every_column()
    if name not in names:
        raise ValueError(f"unknown column{suggestion(name, names)}")
    return name


def _kind_of_values(values: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Other tables than link samples have kinds of their own."""
    if info.data.get("table") == "link_samples":
        one_of(values.get("kind"), LINK_KINDS, "kind of link samples")
    return values


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{shown(text)} is no regular expression: {error}") from error
    if not groups:
        raise ValueError(f"{shown(text)} has no named group such as (?P<dst>...)")
    for group in groups:
        if group != MEASURE:
            one_of(group, tuple(_every_column()), "column as the name of a group:")
    return text


def _accepted(said: tuple[str, ...]) -> tuple[str, ...]:
    for word in said:
        column, _, fault = word.rpartition(".")
        one_of(column, tuple(_every_column()), f"column in {shown(word)}:")
        one_of(fault, FAULTS, f"fault in {shown(word)}:")
    return said


Text = Annotated[str | None, Expected("a text")]
Column = Annotated[str, AfterValidator(_column)]
Instant = Annotated[datetime | None, AfterValidator(utc), Expected("a time, such as 2024-03-01T00:00:00Z")]
Accepted = Annotated[
    tuple[str, ...],
    Field(strict=False),
    AfterValidator(_accepted),
    Expected('a list such as ["util.constant"]'),
]


def texts(section: str, line: str) -> Expected:
    """Returns the annotation of a table of texts."""
    return Expected(f"a table of texts: [{section}] and lines such as {line}")


class TimeAxis(Config):
    """The time that a column of numbers means: counted from `start`, or from the row before."""

    model_config = ConfigDict(strict=True)

    mode: Annotated[Literal["elapsed", "interval"], Expected('"elapsed" or "interval"')] = "elapsed"
    unit: Annotated[
        Literal["ns", "us", "ms", "s", "min", "h", "d"], Expected("one of ns, us, ms, s, min, h, d")
    ] = "s"
    start: Instant = None

    @property
    def unit_s(self) -> float:
        """The unit in seconds."""
        return {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[
            self.unit
        ]


class Melt(Config):
    """Which columns of a wide table are cells, and what their names say.

    columns: pattern of their names; its named groups are canonical columns, or `measure`.
    value: canonical column of the cells; with a group `measure`, `values` says which its words mean.
    """

    model_config = ConfigDict(strict=True)

    columns: Annotated[str, AfterValidator(_pattern), Expected("a regular expression")]
    value: Annotated[
        str | None,
        AfterValidator(lambda name: one_of(name, tuple(_every_column()), "column")),
        Expected("a canonical column"),
    ] = None
    values: Annotated[dict[str, Column], texts("melt.values", '"power" = "power_w"')] = Field(default={})


class MappingKeys(Config):
    """The mapping of one table: at the top of `dataset.toml`, or in one of its `[[tables]]`."""

    model_config = ConfigDict(strict=True)

    table: Annotated[Text, AfterValidator(lambda name: one_of(name, TABLES, "table"))] = None
    rows: Annotated[Text, Expected('a path such as "links[].samples[]"')] = None
    time_format: Annotated[Text, Expected('a format such as "%d.%m.%Y %H:%M"')] = None
    time: Annotated[TimeAxis | None, Expected('a table: [time] and lines such as mode = "elapsed"')] = None
    melt: Annotated[Melt | None, Expected('a table: [melt] and a line columns = "..."')] = None
    columns: Annotated[
        dict[Column, str], texts("columns", 'bandwidth_bps = "mbps"; units go into [units]')
    ] = Field(default={})
    units: Annotated[dict[Column, str], texts("units", 'bandwidth_bps = "Mb/s"')] = Field(default={})
    values: Annotated[
        dict[Column, str | int | float],
        AfterValidator(_kind_of_values),
        Expected('a table of texts and numbers: [values] and lines such as src = "paris"'),
    ] = Field(default={})


class TableMapping(MappingKeys):
    """One of several tables in one file."""

    table: Annotated[str, AfterValidator(lambda name: one_of(name, TABLES, "table"))]
