"""Runs of one world as points of time and cost per token, with those on the Pareto front marked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest.core.errors import TwinError
from replay.log.events import canonical
from replay.log.run_log import RunReader
from replay.metrics.kpis import of_events
from replay.store import run_index
from replay.store.run_header import Header, from_payload

Json = dict[str, Any]
WEIGHTS = ("efficiency", "utilisation", "cost")


@dataclass(frozen=True, slots=True)
class CostTimePoint:
    """One finished run; `weights` (in the order of `WEIGHTS`) distinguish runs of one policy."""

    run_id: str
    policy: str
    weights: tuple[float, ...]
    seconds_per_token: float
    usd_per_token: float
    best: bool = False  # on the Pareto front


def points(store: Path, run_id: str) -> tuple[CostTimePoint, ...]:
    """Returns the finished runs of the store in the world of `run_id`, whatever their policy and weights.

    Of runs with the same policy, weights and checkpoint the newest is taken, but always `run_id` itself;
    other what-ifs in which two policies decided and unreadable runs are left out.
    """
    wanted = _world(from_payload(RunReader(run_index.folder(store, run_id)).header()))
    found: dict[tuple[str, tuple[float, ...], str | None], CostTimePoint] = {}
    for other in run_index.by_start(store, run_index.all_ids(store)):
        reader = RunReader(run_index.folder(store, other))
        try:
            if not reader.manifests() or not reader.finished:
                continue
            header = from_payload(reader.header())
            two_policies = header.branch is not None and int(header.branch["decision"]) > 0
            if (two_policies and other != run_id) or _world(header) != wanted:
                continue
            kpis = of_events(reader.events())
        except TwinError:  # damaged: reported by the audit
            continue
        if kpis.time_per_token_s is not None and kpis.usd_per_token is not None:
            chosen = header.world["scenario"].get("weights", {})
            weights = tuple(chosen[name] for name in WEIGHTS if name in chosen)
            key = (header.policy, weights, header.checkpoint)
            if key in found and found[key].run_id == run_id:
                continue
            found[key] = CostTimePoint(
                other, header.policy, weights, kpis.time_per_token_s, kpis.usd_per_token
            )
    return marked(list(found.values()))


def marked(found: Sequence[CostTimePoint]) -> tuple[CostTimePoint, ...]:
    """Returns the points, cheapest first, those of the front marked."""
    return tuple(
        replace(point, best=not any(_dominates(other, point) for other in found))
        for point in sorted(found, key=lambda p: (p.usd_per_token, p.seconds_per_token, p.policy))
    )


def _dominates(one: CostTimePoint, other: CostTimePoint) -> bool:
    ours, theirs = ((point.seconds_per_token, point.usd_per_token) for point in (one, other))
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def _world(header: Header) -> str:
    """Canonical text of what comparable runs share: all of the world but the weights of the objective."""
    scenario = {name: value for name, value in header.world["scenario"].items() if name != "weights"}
    return canonical({**header.world, "scenario": scenario, "engine": header.engine})
