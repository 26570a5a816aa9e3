"""What a benchmark found, as events: a run of its own for each chapter, so that `twin sql` has them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from replay.bench import comparison as compare
from replay.store import run_index as runs
from replay.bench.load import steadiness
from replay.bench.result import Bench, Chapter, Played, regret
from replay.log.events import canonical
from replay.store.run_header import Header, opening
from replay.metrics.paired_comparison import Verdict
from replay.log.run_log import RunReader, RunWriter
from replay.store.run_index import BENCH

Json = dict[str, Any]


def log(store: Path, result: Bench) -> tuple[str, ...]:
    """Write what was found as the events of finished runs, one a scenario in which anybody ran; their ids.

    A run of the store that says the same of the same code is not written again.

    Raises:
        StorageError: the disk refused.
    """
    return tuple(run for chapter in result.chapters if (run := _logged(store, chapter)) is not None)


def _logged(store: Path, chapter: Chapter) -> str | None:
    ran = next((o.run_id for played in chapter.worlds for o in played.outcomes if o.run_id), None)
    if ran is None:
        return None
    one = compare.header_of(store, ran)
    header = replace(one, policy=BENCH, checkpoint=None, branch=None, part_of=None, enforce_deadline=False)
    found = list(events(chapter))
    name = (store, header.scenario().name, BENCH, header.seed, header.config_digest)
    known = (run for run in runs.same_config(*name) if _says(store, run, header, found))
    return next(known, None) or _written(store, runs.new_id(*name), header, found)


def events(chapter: Chapter) -> Iterator[tuple[str, Json]]:
    """(type, payload) of every verdict and regret, then of what noise, load and other weights do."""
    yield from _verdicts(chapter)
    for played in (*chapter.worlds, *(p for noised in chapter.noisy.values() for p in noised)):
        yield from _regrets(played, chapter.policies)
    for row in chapter.robustness():
        level = row.pop("clip")
        yield "noise_measured", {**row, "level": level}
    for steady in steadiness(chapter):
        yield "load_measured", {
            "policy": steady.policy, "load": steady.load, "worlds": steady.worlds,
            "stability": _interval(steady.stability), "worst": steady.worst, "queued": steady.queued,
            "utilisation": steady.utilisation_owned,
        }  # fmt: skip
    for reach in () if chapter.front is None else chapter.front.reaches:
        assert chapter.front is not None
        yield "front_reached", {
            "policy": reach.policy, "points": reach.points, "coverage": reach.coverage,
            "hypervolume": reach.volume, "exact": chapter.front.exact,
        }  # fmt: skip


def _verdicts(chapter: Chapter) -> Iterator[tuple[str, Json]]:
    for policy in chapter.policies:
        for pair in chapter.versus(policy):
            yield "policies_compared", {
                "policy": policy, "base": pair.base, "seeds": [p.world.seed for p in chapter.worlds],
                "runs": _runs(chapter, policy), "base_runs": _runs(chapter, pair.base),
                "worlds": pair.worlds, "wins": pair.wins, "losses": pair.losses, "ties": pair.ties,
                "saved": _interval(pair.mean), "saved_middle": _interval(pair.middle),
                "tokens": _interval(pair.over_time), "verdict": pair.verdict,
            }  # fmt: skip


def _regrets(played: Played, policies: Sequence[str]) -> Iterator[tuple[str, Json]]:
    for policy, outcome in zip(policies, played.outcomes, strict=True):
        if outcome.run_id is not None and played.bound is not None:
            yield "regret_measured", {
                "policy": policy, "seed": played.world.seed, "level": played.world.clip,
                "run": outcome.run_id, "regret": regret(outcome, played.bound), "exact": played.bound.exact,
            }  # fmt: skip


def _runs(chapter: Chapter, policy: str) -> list[str | None]:
    return [outcome.run_id for outcome in chapter.of(policy)]


def _interval(verdict: Verdict | None) -> list[float] | None:
    return None if verdict is None else [verdict.mean, verdict.low, verdict.high]


def _written(store: Path, run_id: str, header: Header, found: list[tuple[str, Json]]) -> str:
    with RunWriter.create(runs.folder(store, run_id)) as writer:
        writer.append(0, "run_started", header.payload(), wall=opening())
        for kind, payload in found:
            writer.append(0, kind, payload)
        writer.finish({"findings": len(found)})
    return run_id


def _says(store: Path, run_id: str, header: Header, found: list[tuple[str, Json]]) -> bool:
    """Whether a run of the store is finished and holds this."""
    reader = RunReader(runs.folder(store, run_id))
    if not reader.manifests() or not reader.finished:
        return False
    if canonical(reader.header()) != canonical(header.payload()):
        return False
    said = [(event.type, event.payload) for event in reader.events()]
    return said[1:-1] == found
