"""Runs of one world as points of time and money per token: which of them nothing else beats in both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest.core.errors import TwinError
from replay.store import run_index as runs
from replay.log.events import canonical
from replay.store.run_header import Header, from_payload
from replay.metrics.kpis import of_events
from replay.log.run_log import RunReader

Json = dict[str, Any]
WEIGHTS = ("efficiency", "utilisation", "cost")


@dataclass(frozen=True, slots=True)
class Point:
    """One finished run; `weights` (in the order of `WEIGHTS`) tell runs of one policy apart."""

    run_id: str
    policy: str
    weights: tuple[float, ...]
    seconds_per_token: float
    usd_per_token: float
    best: bool = False  # no other point is at least as good in both and better in one


def points(store: Path, run_id: str) -> tuple[Point, ...]:
    """The finished runs of the store in the world of `run_id`, whatever their policy and weights.

    Of runs with the same policy, weights and checkpoint the newest stands for all; what-ifs and runs that
    cannot be read are left out.
    """
    wanted = _world(from_payload(RunReader(runs.folder(store, run_id)).header()))
    found: dict[tuple[str, tuple[float, ...], str | None], Point] = {}
    for other in runs.by_start(store, runs.all_ids(store)):
        reader = RunReader(runs.folder(store, other))
        try:
            if not reader.manifests() or not reader.finished:
                continue
            header = from_payload(reader.header())
            if header.branch is not None or _world(header) != wanted:
                continue
            kpis = of_events(reader.events())
        except TwinError:  # a damaged run is the audit's matter, not a point
            continue
        if kpis.time_per_token_s is not None and kpis.usd_per_token is not None:
            chosen = header.world["scenario"].get("weights", {})
            weights = tuple(chosen[name] for name in WEIGHTS if name in chosen)
            key = (header.policy, weights, header.checkpoint)
            found[key] = Point(other, header.policy, weights, kpis.time_per_token_s, kpis.usd_per_token)
    return marked(list(found.values()))


def marked(found: Sequence[Point]) -> tuple[Point, ...]:
    """The points, cheapest first, those of the front marked."""
    return tuple(
        replace(point, best=not any(_beats(other, point) for other in found))
        for point in sorted(found, key=lambda p: (p.usd_per_token, p.seconds_per_token, p.policy))
    )


def _beats(one: Point, other: Point) -> bool:
    ours, theirs = ((point.seconds_per_token, point.usd_per_token) for point in (one, other))
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def _world(header: Header) -> str:
    """What two runs must share to be compared: everything but what the policy is told to prefer."""
    scenario = {name: value for name, value in header.world["scenario"].items() if name != "weights"}
    return canonical({**header.world, "scenario": scenario, "engine": header.engine})
