"""Results of a benchmark as events: one run a scenario, so that `twin sql` can query them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from replay.bench import comparison
from replay.bench.result import Bench, ScenarioResult, WorldResult, regret
from replay.log.events import canonical
from replay.log.run_log import RunReader, RunWriter
from replay.metrics.paired_comparison import PairedDifference
from replay.store import run_index
from replay.store.run_header import Header, opening
from replay.store.run_index import BENCH

Json = dict[str, Any]


def log(store: Path, result: Bench) -> tuple[str, ...]:
    """Writes the results as events of finished runs, one a scenario with any run; returns their ids.

    The newest run of the store is not written again if it has the same results of the same code.

    Raises:
        StorageError: the disk refused.
    """
    return tuple(run for scenario in result.scenarios if (run := _logged(store, scenario)) is not None)


def _logged(store: Path, result: ScenarioResult) -> str | None:
    ran = next((o.run_id for played in result.worlds for o in played.outcomes if o.run_id), None)
    if ran is None:
        return None
    one = comparison.header_of(store, ran)
    header = replace(one, policy=BENCH, checkpoint=None, branch=None, part_of=None, enforce_deadline=False)
    found = list(events(result))
    name = (store, header.scenario().name, BENCH, header.seed, header.config_digest)
    members = {policy: _runs(result, policy) for policy in result.policies}
    totals = {"findings": len(found), "runs": members}
    newest = run_index.latest(store).run_id
    if newest in run_index.same_config(*name) and _holds(store, newest, header, found, totals):
        return newest
    return _written(store, run_index.new_id(*name), header, found, totals)


def events(result: ScenarioResult) -> Iterator[tuple[str, Json]]:
    """Yields (type, payload) of every verdict and regret, then of the effects of noise, load and weights."""
    yield from _verdicts(result)
    for played in (*result.worlds, *(p for noised in result.noisy.values() for p in noised)):
        yield from _regrets(played, result.policies)
    for row in result.robustness():
        level = row.pop("clip")
        yield "noise_measured", {**row, "level": level}
    for steady in result.under_load():
        yield "load_measured", {
            "policy": steady.policy, "load": steady.load, "worlds": steady.worlds,
            "stability": _interval(steady.stability), "worst": steady.worst, "queued": steady.queued,
            "utilisation": steady.utilisation_owned,
        }  # fmt: skip
    for reach in () if result.front is None else result.front.reaches:
        assert result.front is not None
        yield "front_reached", {
            "policy": reach.policy, "points": reach.points, "coverage": reach.coverage,
            "hypervolume": reach.volume, "exact": result.front.exact,
        }  # fmt: skip


def _verdicts(result: ScenarioResult) -> Iterator[tuple[str, Json]]:
    for policy in result.policies:
        for pair in result.versus(policy):
            yield "policies_compared", {
                "policy": policy, "base": pair.base, "seeds": [p.world.seed for p in result.worlds],
                "runs": _runs(result, policy), "base_runs": _runs(result, pair.base),
                "worlds": pair.worlds, "wins": pair.wins, "losses": pair.losses, "ties": pair.ties,
                "saved": _interval(pair.mean), "saved_middle": _interval(pair.middle),
                "tokens": _interval(pair.over_time), "verdict": pair.verdict,
            }  # fmt: skip


def _regrets(played: WorldResult, policies: Sequence[str]) -> Iterator[tuple[str, Json]]:
    for policy, outcome in zip(policies, played.outcomes, strict=True):
        if outcome.run_id is not None and played.bound is not None:
            yield "regret_measured", {
                "policy": policy, "seed": played.world.seed, "level": played.world.clip,
                "run": outcome.run_id, "regret": regret(outcome, played.bound), "exact": played.bound.exact,
            }  # fmt: skip


def _runs(result: ScenarioResult, policy: str) -> list[str | None]:
    return [outcome.run_id for outcome in result.of(policy)]


def _interval(verdict: PairedDifference | None) -> list[float] | None:
    return None if verdict is None else [verdict.mean, verdict.low, verdict.high]


def _written(store: Path, run_id: str, header: Header, found: list[tuple[str, Json]], totals: Json) -> str:
    with RunWriter.create(run_index.folder(store, run_id)) as writer:
        writer.append(0, "run_started", header.payload(), wall=opening())
        for kind, payload in found:
            writer.append(0, kind, payload)
        writer.finish(totals)
    return run_id


def _holds(store: Path, run_id: str, header: Header, found: list[tuple[str, Json]], totals: Json) -> bool:
    """True if a run of the store is finished and holds these results."""
    reader = RunReader(run_index.folder(store, run_id))
    if not reader.manifests() or not reader.finished:
        return False
    if canonical(reader.header()) != canonical(header.payload()):
        return False
    events = [(event.type, event.payload) for event in reader.events()]
    return events[1:-1] == found and events[-1][1]["totals"] == totals
