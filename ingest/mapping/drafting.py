"""A `dataset.toml` to start from: columns guessed by their names, for a person to correct.

Nothing is read by a guess: the draft is shown, and only what its reader puts into `dataset.toml` counts.
"""

import json
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
_CHOICE = ("link_samples", "gpu_samples", "host_samples", "jobs", "step_times", "layer_profiles", "op_times")


@dataclass(slots=True)
class Draft:
    """A guessed mapping: columns by canonical name, units, and required columns that nothing fits."""

    table: str
    columns: dict[str, str]
    units: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def draft(look: Look) -> Draft | None:
    """Returns the guess for a file of this look; None if hardly a name says anything."""
    made = [_for(table, look) for table in _CHOICE]
    best = max(made, key=lambda one: 2 * len(one.columns) - 3 * len(one.missing))
    return best if len(best.columns) > 1 else None


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
    return Draft(table, columns, units, [name for name in needed if name not in columns])


def _fits(target: str, name: str) -> bool:
    last = re.split(r"[.\[\]]+", name.strip("."))[-1] if name.startswith(".") else name
    return re.search(_NAMES[target], last.strip(), re.IGNORECASE) is not None


def _unit(target: str, name: str, look: Look) -> str | None:
    if target.endswith("ts"):
        cell = look.sample[look.names.index(name)] if len(look.sample) == len(look.names) else ""
        digits = len(cell.strip()) if cell.strip().isdecimal() else 0
        return {13: "ms", 16: "us", 19: "ns"}.get(digits)
    for pattern, ending, unit in _UNITS:
        fits = target.endswith(ending) if ending else target in _FRACTIONS
        if fits and re.search(pattern, name, re.IGNORECASE):
            return unit
    return None


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
    missing = {name: "SITE" for name in (made.missing if made else ["src", "dst"]) if name in ("src", "dst")}
    for section, held in (("columns", columns), ("units", made.units if made else {}), ("values", missing)):
        pairs = [f"{name} = {_quoted(value)}" for name, value in held.items()]
        if pairs:
            lines += [f"{section} = {{{', '.join(pairs)}}}"] if short else [f"[{section}]", *pairs]
    return lines


def unmapped(look: Look, made: Draft | None) -> Sequence[str]:
    """Returns the names of a file that the draft does not use."""
    used = set(made.columns.values()) if made else set()
    return [name for name in look.names if name not in used]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
