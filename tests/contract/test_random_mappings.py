"""Random mappings of five files: each is refused, or gives only rows that can be believed; none is silent.

`TWIN_FUZZ=2000` sets the number of mappings; the default keeps the suite short. What is believable is judged
here once more, row by row and without the code under test.
"""

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.lake.schema import TABLES
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import Source, from_bytes
from ingest.pipeline.transaction import Transaction
from ingest.readers.columns import Columns
from tests.support.kit import lines

COUNT = int(os.environ.get("TWIN_FUZZ", "100"))
START = 1_772_323_200
ROWS = 40


def _files() -> dict[str, tuple[bytes, list[str], dict[str, Any]]]:
    """Content, names of the columns and what else is stated, of five tables with all kinds of columns."""
    rng = random.Random(5)
    numbers = range(ROWS)
    link = [
        f"{START + 60 * n},{rng.choice('abc')},{rng.choice('xyz')},{rng.uniform(50, 900):.1f},"
        f"{rng.uniform(3, 90):.2f},{n}"
        for n in numbers
    ]
    gpu = [
        f"{datetime.fromtimestamp(START + n, UTC).isoformat()};n{n % 2};{n % 8};{rng.uniform(90, 690):.1f};"
        f"{rng.uniform(0, 100):.0f};{rng.randrange(10, 80000)}"
        for n in numbers
    ]
    jobs = [
        f"{100 + n},{START + 100 * n},{START + 100 * n + 50},{START + 100 * n + 900},{2 ** (n % 4)},"
        f"u{n % 3},{rng.uniform(1, 9):.2f}"
        for n in numbers
    ]
    points = [
        {"at": 1000 * (START + n), "bps": rng.uniform(1e7, 1e9), "rtt_us": rng.uniform(900, 9e4)}
        for n in range(ROWS)
    ]
    steps = [f"{n},{rng.uniform(0.9, 1.4):.4f},{n * 1.1:.2f},w{n % 4}" for n in range(ROWS)]
    nested = json.dumps({"links": [{"a": "p", "b": "q", "points": points}]}).encode()
    return {
        "links.csv": (
            lines("when,from,to,mbps,ping_ms,n", *link),
            ["when", "from", "to", "mbps", "ping_ms", "n"],
            {},
        ),
        "gpus.csv": (
            lines("time;node;gpu;watts;load;mib", *gpu),
            ["time", "node", "gpu", "watts", "load", "mib"],
            {"delimiter": ";"},
        ),
        "jobs.csv": (
            lines("id,sub,begin,finish,n,who,h", *jobs),
            ["id", "sub", "begin", "finish", "n", "who", "h"],
            {},
        ),
        "links.json": (
            nested,
            ["at", "bps", "rtt_us", ".links[].a", ".links[].b"],
            {"rows": "links[].points[]"},
        ),
        "steps.csv": (lines("it,secs,total,worker", *steps), ["it", "secs", "total", "worker"], {}),
    }


FILES = _files()
UNITS = ["s", "ms", "us", "ns", "Mb/s", "Gb/s", "b/s", "%", "W", "mW", "MiB", "B"]
TARGETS = ("link_samples", "gpu_samples", "jobs", "step_times", "host_samples")


def mapping(rng: random.Random, names: list[str], stated: dict[str, Any]) -> dict[str, Any]:
    """A mapping in which everything is a matter of chance."""
    table = rng.choice(TARGETS)
    fields = [f for f in TABLES[table] if f.name not in ("dataset", "source_file", "source_row", "kind")]
    columns = {f.name: rng.choice(names) for f in fields if not f.nullable or rng.random() < 0.3}
    units = {name: rng.choice(UNITS) for name in columns if rng.random() < 0.3}
    made = {"name": "set", "table": table, "columns": columns, "units": units, **stated}
    if rng.random() < 0.3:
        mode, unit = rng.choice(["elapsed", "interval"]), rng.choice(["ms", "s", "min", "d"])
        made["time"] = {"mode": mode, "unit": unit}
        if rng.random() < 0.7:
            made["time"]["start"] = datetime(rng.choice([1999, 2024, 2025]), 3, 1, tzinfo=UTC)
    return made


RIGHT: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "links.csv": (
        "link_samples",
        {"ts": "when", "src": "from", "dst": "to", "bandwidth_bps": "mbps", "rtt_s": "ping_ms"},
        {"bandwidth_bps": "Mb/s", "rtt_s": "ms"},
    ),
    "gpus.csv": (
        "gpu_samples",
        {
            "ts": "time",
            "host": "node",
            "gpu": "gpu",
            "power_w": "watts",
            "util": "load",
            "mem_used_bytes": "mib",
        },
        {"util": "%", "mem_used_bytes": "MiB"},
    ),
    "jobs.csv": (
        "jobs",
        {
            "job_id": "id",
            "submit_ts": "sub",
            "start_ts": "begin",
            "end_ts": "finish",
            "gpus": "n",
            "user": "who",
        },
        {},
    ),
    "links.json": (
        "link_samples",
        {"ts": "at", "src": ".links[].a", "dst": ".links[].b", "bandwidth_bps": "bps", "rtt_s": "rtt_us"},
        {"ts": "ms", "rtt_s": "us"},
    ),
    "steps.csv": ("step_times", {"step": "it", "time_s": "secs", "worker": "worker"}, {}),
}
"""Of each file the mapping that is right."""


def slipped(rng: random.Random, name: str) -> dict[str, Any]:
    """The right mapping with one to three slips: another column, another unit, none."""
    table, columns, units = RIGHT[name]
    columns, units = dict(columns), dict(units)
    for _ in range(rng.randint(1, 3)):
        target, slip = rng.choice(list(columns)), rng.random()
        if slip < 0.5:
            columns[target] = rng.choice(FILES[name][1])
        elif slip < 0.75 or target not in units:
            units[target] = rng.choice(UNITS)
        else:
            del units[target]
    return {"name": "set", "table": table, "columns": columns, "units": units, **FILES[name][2]}


MOST = {
    "bandwidth_bps": 1e13,
    "rtt_s": 30,
    "one_way_s": 30,
    "power_w": 5e4,
    "temp_c": 130,
    "gpus": 1e6,
    "mem_used_bytes": 1e13,
    "time_s": 1e5,
    "duration_s": 3.2e8,
}


def faults(table: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> list[str]:
    """Sentences about rows that nobody believes."""
    found = []
    instants = [name for name in ("ts", "submit_ts", "start_ts", "end_ts") if name in TABLES[table].names]
    latest = datetime.now(UTC) + timedelta(days=1, minutes=1)
    for row in rows:
        given = [row[name] for name in instants if row[name] is not None]
        found += [f"{at}" for at in given if not datetime(2005, 1, 1, tzinfo=UTC) <= at <= latest]
        if given != sorted(given) and instants != ["ts"]:
            found.append(f"{given} out of order")
        found += [f"{name} {row[name]}" for name, most in MOST.items() if (row.get(name) or 0) > most]
    for name in ("bandwidth_bps", "rtt_s", "power_w", "util", "time_s", "mem_used_bytes"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if len(values) >= 8 and len({*values}) == 1:
            found.append(f"{name} is constant")
    for name in ("src", "dst", "host", "user"):
        if name in columns and rows and all(_fraction(row.get(name)) for row in rows):
            found.append(f"{name} is called {rows[0][name]}")
    if len({*columns.values()}) < len(columns) and rows:
        found.append("one column for two")
    return found


def _fraction(name: Any) -> bool:
    try:
        return isinstance(name, str) and "." in name and float(name) >= 0
    except ValueError:
        return False


@pytest.mark.parametrize("name", FILES)
def test_the_right_mapping_stores_every_row(name: str, tmp_path: Path) -> None:
    table, columns, units = RIGHT[name]
    options = DatasetOptions(name="set", table=table, columns=columns, units=units, **FILES[name][2])
    rows = stored(from_bytes(name, name, FILES[name][0]), options, tmp_path)
    assert len(rows) == ROWS and faults(table, rows, columns) == []


def stored(source: Source, options: DatasetOptions, store: Path) -> list[dict[str, Any]]:
    """The rows that an ingest would store."""
    unit = Transaction(store, options)
    taken = unit.take(source, Columns())
    assert taken.rows_in == taken.rows.total() + taken.rejected
    chunks = unit._chunks.items()
    return (
        [row for table, held in chunks for row in unit._finisher(table, held)().to_pylist()]
        if taken.rows
        else []
    )


@pytest.mark.filterwarnings("ignore:Discarding nonzero nanoseconds")
def test_no_random_mapping_stores_what_nobody_believes(tmp_path: Path) -> None:
    rng = random.Random(24)
    sources = {name: from_bytes(name, name, content) for name, (content, _, _) in FILES.items()}
    refused = passed = 0
    for number in range(COUNT):
        name = list(FILES)[number % len(FILES)]
        by_chance = number // len(FILES) % 2
        stated = mapping(rng, *FILES[name][1:]) if by_chance else slipped(rng, name)
        try:
            options = DatasetOptions(**stated)
            rows = stored(sources[name], options, tmp_path)
        except (InputError, UsageError) as error:
            assert str(error)
            refused += 1
            continue
        passed += bool(rows)
        assert faults(stated["table"], rows, stated["columns"]) == [], (name, stated)
    assert refused > COUNT / 4, (refused, passed)
    print(f"{COUNT} mappings: {refused} refused, {passed} gave rows, all believable")
