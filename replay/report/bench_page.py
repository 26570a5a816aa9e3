"""The page about a benchmark: its policies side by side, the best marked, and which one wins by how much."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ingest.core.errors import TwinError
from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.metrics.kpis import Kpis, of_events
from replay.report import several_runs
from replay.report.drawing.formatting import NONE, percent, plain, scaled
from replay.report.drawing.section import Section, document, section
from replay.report.identity import facts_of
from replay.store import run_index

Json = dict[str, Any]
LESS_IS_BETTER = ("time", "usd", "egress", "regret")


@dataclass(frozen=True, slots=True)
class BenchPolicy:
    """A policy of a benchmark: its runs, one a world, and their key figures; None of a run that has gone."""

    name: str
    runs: tuple[str, ...]
    kpis: tuple[Kpis | None, ...]
    regret: float | None

    def mean(self, figure: str) -> float | None:
        """Returns the mean of a key figure over the worlds; None where a run lacks it."""
        values = [getattr(one, figure) for one in self.kpis if one is not None]
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(self.kpis) else None

    @property
    def seconds_per_token(self) -> float | None:
        """Mean time per token."""
        return self.mean("time_per_token_s")


def render(store: Path, run_id: str) -> str:
    """Returns the page of the record of a benchmark as one HTML document."""
    reader = RunReader(run_index.folder(store, run_id))
    events = list(reader.events())
    header, compared = events[0].payload, [one.payload for one in events if one.type == "policies_compared"]
    found = sorted(_policies(store, events), key=_by_time)
    worlds = max((len(one.runs) for one in found), default=0)
    names = [one.name for one in found]
    head = section(
        "bench_head", heading=f"Benchmark of {header['scenario']['name']}: {', '.join(names)}", run_id=run_id,
        dataset=header["dataset"] or header["scenario"]["wan"]["dataset"], window=header["window"],
        worlds=worlds, note=header.get("note", ""),
    )  # fmt: skip
    parts = [head, _answer(found, compared, worlds), _paired(compared), *_of_one_world(store, found, worlds)]
    facts = facts_of(header, reader.digest(), reader.chain_head(), len(events))
    parts.append(section("verification", "How to check this", facts=facts, run_id=run_id,
                         note=header.get("note", "") or "none"))  # fmt: skip
    return document(f"Benchmark {run_id}", parts, None)


def _policies(store: Path, events: Sequence[Event]) -> list[BenchPolicy]:
    runs = members(events)
    regrets: dict[str, list[float]] = {}
    for event in events:
        if event.type == "regret_measured" and not event.payload["level"]:
            regrets.setdefault(event.payload["policy"], []).append(event.payload["regret"])
    mean = {name: fmean(values) for name, values in regrets.items()}
    return [
        BenchPolicy(name, ids, tuple(_kpis(store, run) for run in ids), mean.get(name))
        for name, ids in runs.items()
    ]


def members(events: Iterable[Event]) -> dict[str, tuple[str, ...]]:
    """Returns the runs of each policy that the record of a benchmark names; one of an older version names
    those that were compared."""
    found: dict[str, Sequence[str | None]] = {}
    for event in events:
        if event.type == "policies_compared":
            found.setdefault(event.payload["policy"], event.payload["runs"])
            found.setdefault(event.payload["base"], event.payload["base_runs"])
        elif event.type == "run_finished":
            found |= event.payload["totals"].get("runs", {})
    return {name: tuple(run for run in runs if run) for name, runs in found.items() if any(runs)}


def _kpis(store: Path, run: str) -> Kpis | None:
    try:
        return of_events(RunReader(run_index.folder(store, run)).events())
    except TwinError:  # it was removed
        return None


def _by_time(one: BenchPolicy) -> tuple[bool, float, str]:
    return one.seconds_per_token is None, one.seconds_per_token or 0.0, one.name


def _answer(found: Sequence[BenchPolicy], compared: Sequence[Json], worlds: int) -> Section:
    columns: list[tuple[str, list[float | None], Any]] = [
        ("time", [one.seconds_per_token for one in found], lambda v: scaled(v, 1e6)),
        ("speed", [one.mean("tokens_per_s") for one in found], scaled),
        ("mfu", [one.mean("mfu") for one in found], percent),
        ("usd", [one.mean("total_usd_per_token") for one in found], lambda v: scaled(v, 1e9)),
        ("egress", [one.mean("usd_per_token") for one in found], lambda v: scaled(v, 1e9)),
        ("moves", [one.mean("moves") for one in found], scaled),
        ("regret", [one.regret for one in found], percent),
    ]
    if all(value is None for value in columns[-1][1]):
        columns.pop()
    titles = {
        "time": "µs/token",
        "speed": "tokens/s",
        "mfu": "MFU",
        "usd": "USD per 10⁹ tokens",
        "egress": "of it egress",
        "moves": "moves",
        "regret": "regret",
    }
    rows = [
        (one.name, [(text(values[k]), k in _best(name, values)) for name, values, text in columns],
         ", ".join(one.runs))
        for k, one in enumerate(found)
    ]  # fmt: skip
    return section(
        "bench_answer", "The answer", sentence=_sentence(found, compared, worlds), rows=rows,
        titles=("policy", *(titles[name] for name, *_ in columns), "runs"),
    )  # fmt: skip


def _best(name: str, values: Sequence[float | None]) -> frozenset[int]:
    known = [value for value in values if value is not None]
    if name == "moves" or len(set(known)) < 2:
        return frozenset()
    wanted = min(known) if name in LESS_IS_BETTER else max(known)
    return frozenset(k for k, value in enumerate(values) if value == wanted)


def _sentence(found: Sequence[BenchPolicy], compared: Sequence[Json], worlds: int) -> str:
    """Which policy needs the least time a token, against the next and the last."""
    ran = [one for one in found if one.seconds_per_token is not None]
    if not ran:
        return "None of its runs is in this store any more; the verdicts below are those of the record."
    first = ran[0]
    assert first.seconds_per_token is not None
    in_worlds = "" if worlds == 1 else f", mean over {worlds} worlds"
    equal = [one for one in ran if one.seconds_per_token == first.seconds_per_token]
    names = " and ".join(filter(None, (", ".join(one.name for one in equal[:-1]), equal[-1].name)))
    need = "needs" if len(equal) == 1 else "need"
    text = f"{names} {need} the least time: {plain(first.seconds_per_token * 1e6)} µs a token{in_worlds}"
    parts = []
    slower = ran[len(equal) :]
    for other in {one.name: one for one in (slower[:1] + slower[-1:])}.values():
        assert other.seconds_per_token is not None
        less = percent(1 - first.seconds_per_token / other.seconds_per_token)
        parts.append(f"{less} less than {other.name}{_interval(first.name, other.name, compared)}")
    return f"{text}{': ' if parts else ''}{', and '.join(parts)}."


def _interval(policy: str, base: str, compared: Sequence[Json]) -> str:
    """What the record says of this pair, in parentheses."""
    for one in compared:
        if (one["policy"], one["base"]) == (policy, base):
            found = one["saved"] if one["worlds"] > 1 and one["saved"] else one["tokens"]
            word = "" if one["verdict"] != "equal" else ", no different"
            what = "saved" if found is one["saved"] else "tokens gained"
            return f" (95 % interval of the {what}: {100 * found[1]:+.1f} to {100 * found[2]:+.1f} %{word})"
    return ""


def _paired(compared: Sequence[Json]) -> Section | None:
    """The verdicts of the record, a row a pair."""
    rows = [
        (f"{one['policy']} against {one['base']}", f"{one['worlds']}", _spread(one["saved"]),
         _spread(one["tokens"]), one["verdict"], f"{one['wins']}", f"{one['losses']}", f"{one['ties']}")
        for one in compared
    ]  # fmt: skip
    titles = ("pair", "worlds", "time saved, 95 % over worlds", "tokens gained, 95 % over time", "verdict",
              "wins", "losses", "ties")  # fmt: skip
    return section("several_figures", "Paired differences", titles=titles, rows=rows) if rows else None


def _spread(found: Sequence[float] | None) -> str:
    if found is None:
        return NONE
    mean, low, high = (f"{100 * value:+.1f}" for value in found)
    return f"{mean} [{low}, {high}] %" if low != mean or high != mean else f"{mean} %"


def _of_one_world(store: Path, found: Sequence[BenchPolicy], worlds: int) -> list[Section | None]:
    """The runs of the only world over the same time, and all their key figures."""
    runs = [one.runs[0] for one in found if one.kpis and one.kpis[0] is not None]
    if worlds != 1 or not 2 <= len(runs) <= several_runs.MOST:
        return []
    return several_runs.side_by_side(store, runs)
