"""A `dataset.toml` to start from: columns guessed by their names, for a person to correct.

Nothing is read by a guess: the draft is shown, and only what its reader puts into `dataset.toml` counts.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.lake.schema import TABLES
from ingest.mapping.sniffing import Look

_NAMES: dict[str, str] = {
    "submit_ts": r"submi|creat.*time|queued",
    "start_ts": r"^start|start.?(time|ts)|begin",
    "end_ts": r"^end|end.?(time|ts)|finish|stop",
    "ts": r"^(ts|t|time|when|date|at|clock|epoch)$|time.?stamp|date.?time|wall.?time|^time|zeit|datum",
    "src": r"^(src|source|from|origin|local|client|a)$|^(src|source|from)[_. ]",
    "dst": r"^(dst|dest|destination|to|target|peer|remote|server|b)$|^(dst|dest|destination|to)[_. ]",
    "one_way_s": r"one.?way|owd",
    "rtt_s": r"rtt|round.?trip|ping|latency",
    "bandwidth_bps": r"bandwidth|through.?put|bit.?rate|[kmg]?bps|[kmg]bit|goodput",
    "loss": r"loss",
    "retransmits": r"retr",
    "streams": r"^(streams|connections|parallel)$",
    "gpu_model": r"gpu.?(model|type|name)",
    "gpus": r"num.?gpu|gpu.?(num|count)|^gpus$|n.?gpus",
    "power_w": r"power|watt",
    "util": r"gpu.?util|utili[sz]|^util",
    "mem_used_bytes": r"mem.*(used|usage)|^mem$|^memory$|fb.?used",
    "mem_total_bytes": r"mem.*total",
    "temp_c": r"temp",
    "sm_clock_mhz": r"clock",
    "host": r"^(host|node|hostname|machine|instance)$|host.?name",
    "gpu": r"^(gpu|device|index|gpu.?(id|index))$",
    "job_id": r"^job.?(id|name)?$",
    "user": r"^user|owner",
    "status": r"^(status|state)$",
    "step": r"^(step|iteration|iter|_step|global.?step)$",
    "time_s": r"(step|iter\w*|batch|elapsed).?time|^(duration|elapsed|seconds)",
    "layer": r"^layer|^op(erator)?$",
    "forward_s": r"^(fwd|forward)",
    "backward_s": r"^(bwd|backward)",
    "usd_per_gb": r"usd|price|cost",
}
"""Canonical column and names that strangers give it."""
_UNITS: tuple[tuple[str, str, str], ...] = (
    (r"g(bps|bit|b/s)", "_bps", "Gb/s"),
    (r"m(bps|bit|b/s)", "_bps", "Mb/s"),
    (r"k(bps|bit|b/s)", "_bps", "kb/s"),
    (r"(^|[_. (\[])ms($|[_. )\]])|milli", "_s", "ms"),
    (r"(^|[_. (\[])us($|[_. )\]])|micro", "_s", "us"),
    (r"mib", "_bytes", "MiB"),
    (r"gib", "_bytes", "GiB"),
    (r"(^|[_. (\[])mw($|[_. )\]])|milliwatt", "_w", "mW"),
    (r"pct|percent|%", "", "%"),
)
_FRACTIONS = ("loss", "util", "sm_active", "tensor_active")
_CHOICE = (
    "link_samples", "gpu_samples", "host_samples", "jobs",
    "step_times", "layer_profiles", "op_times", "prices",
)  # fmt: skip
_STATED = ("src", "dst")
"""Required columns that `[values]` can state for a whole file."""
_SPREAD = re.compile(r"jitter|mdev|std", re.IGNORECASE)
"""Names of how much a measurement varies, which is not the measurement."""
_PLAIN = {"rtt_s": (2.0, "ms"), "one_way_s": (2.0, "ms")} | dict.fromkeys(_FRACTIONS, (1.0, "%"))
"""Columns whose values above a limit have, where no name says it, this unit."""
_COUNTED = re.compile(r"^(start|begin|offset|elapsed|seconds|sec|s|t)$", re.IGNORECASE)
"""Names of columns that count from a beginning."""
_PAIR = r"(?P<src>.+?) *(?:->|=>|→| to ) *(?P<dst>.+)"
"""Headings of a wide table that name both ends of a link."""


@dataclass(slots=True)
class Draft:
    """A guessed mapping: columns by canonical name, units, and required columns that nothing fits.

    counted: the column of the time counts seconds from a beginning. melt: pattern of the headings of a wide
    table and canonical column of its cells, or empty.
    """

    table: str
    columns: dict[str, str]
    units: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    counted: bool = False
    melt: tuple[str, str] | tuple[()] = ()

    @property
    def worth(self) -> int:
        """Twice the columns it explains, less 3 for each required one that is absent, 1 if stated."""
        stated = sum(name in _STATED for name in self.missing)
        return 2 * len(self.columns) - 3 * (len(self.missing) - stated) - stated


def draft(look: Look) -> Draft | None:
    """Returns the guess for a file of this look; None if hardly a name says anything."""
    wide = _wide(look)
    if wide is not None:
        return wide
    made = [one for table in _CHOICE if len((one := _for(table, look)).columns) > 1]
    return max(made, key=lambda one: one.worth, default=None)


def _wide(look: Look) -> Draft | None:
    """The guess for a table with a column a link, whose heading names both ends."""
    links = [name for name in look.names if re.fullmatch(_PAIR, name)]
    if look.form not in ("CSV", "Parquet") or len(links) < len(look.names) - 2:
        return None
    times = [name for name in look.names if name not in links and _fits("ts", name)]
    if not times:
        return None
    trips = any(re.search(_NAMES["rtt_s"], name, re.IGNORECASE) for name in links)
    columns = {"ts": times[0]}
    unit = _unit("ts", times[0], look)
    made = Draft("link_samples", columns, {"ts": unit} if unit else {})
    made.melt = (_PAIR, "rtt_s" if trips else "bandwidth_bps")
    return made


def _for(table: str, look: Look) -> Draft:
    columns: dict[str, str] = {}
    allowed = [name for name in TABLES[table].names if name in _NAMES]
    for target in sorted(allowed, key=list(_NAMES).index):
        fitting = [name for name in look.names if name not in columns.values() and _fits(target, name)]
        if fitting:
            columns[target] = fitting[0]
    units = {target: unit for target, name in columns.items() if (unit := _unit(target, name, look))}
    own = ("dataset", "source_file", "source_row")
    needed = [f.name for f in TABLES[table] if not f.nullable and f.name not in own]
    missing = [name for name in needed if name not in columns]
    counts = [name for name in look.names if name not in columns.values() and _COUNTED.match(_last(name))]
    counted = "ts" in missing and bool(counts)
    if counted:
        columns["ts"] = counts[0]
        missing.remove("ts")
    return Draft(table, columns, units, missing, counted)


def _fits(target: str, name: str) -> bool:
    if _SPREAD.search(_last(name)):
        return False
    said = [_last(name)] if name.startswith(".") else [name, _last(name)]
    return any(re.search(_NAMES[target], text.strip(), re.IGNORECASE) for text in said)


def _last(name: str) -> str:
    """The last step of a path."""
    return re.split(r"[.\[\]]+", name.strip("."))[-1]


def _unit(target: str, name: str, look: Look) -> str | None:
    cell = look.sample[look.names.index(name)] if len(look.sample) == len(look.names) else ""
    if target.endswith("ts"):
        digits = len(cell.strip()) if cell.strip().isdecimal() else 0
        return {13: "ms", 16: "us", 19: "ns"}.get(digits)
    for pattern, ending, unit in _UNITS:
        fits = target.endswith(ending) if ending else target in _FRACTIONS
        if fits and re.search(pattern, name, re.IGNORECASE):
            return unit
    limit, unit = _PLAIN.get(target, (math.inf, ""))
    return unit if _number(cell) > limit else None


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def toml(look: Look, made: Draft | None, short: bool = False) -> list[str]:
    """Returns the lines of a `dataset.toml` for a draft; `short` writes each section in one line."""
    lines = [f'table = "{made.table if made else "link_samples"}"']
    if look.rows:
        lines.append(f"rows = {_quoted(look.rows)}")
    if look.form == "CSV" and look.delimiter != ",":
        lines.append(f"delimiter = {_quoted(look.delimiter)}")
    if look.skip_lines:
        lines.append(f"skip_lines = {look.skip_lines}")
    columns = made.columns if made else {"ts": "COLUMN", "bandwidth_bps": "COLUMN"}
    missing = {name: "SITE" for name in (made.missing if made else _STATED) if name in _STATED}
    sections = {
        "columns": columns,
        "units": made.units if made else {},
        "values": missing,
        "time": {"mode": "elapsed", "unit": "s"} if made and made.counted else {},
        "melt": dict(zip(("columns", "value"), made.melt, strict=True)) if made and made.melt else {},
    }
    for section, held in sections.items():
        pairs = [f"{name} = {_quoted(value)}" for name, value in held.items()]
        if pairs:
            lines += [f"{section} = {{{', '.join(pairs)}}}"] if short else [f"[{section}]", *pairs]
    return lines


def unmapped(look: Look, made: Draft | None) -> Sequence[str]:
    """Returns the names of a file that the draft does not use."""
    used = set(made.columns.values()) if made else set()
    melted = made.melt[0] if made and made.melt else ""
    return [name for name in look.names if name not in used and not (melted and re.fullmatch(melted, name))]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
