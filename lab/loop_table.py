"""Closed loop against the first plan alone, trace by trace: paired repetitions, kept as they are made.

A repetition is a pair of trainings over the same links from the same moment of the test window; repetitions
of a trace begin at equal distances in it. Which of the two comes first alternates. Every training is a file
of the folder of results, so that a run that was stopped goes on with what is missing.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import durable
from lab.loop_runs import Degradation, followed, followed_figures, static_figures
from lab.miniature import Miniature
from replay.metrics.formatting import is_synthetic
from replay.metrics.paired_comparison import PairedDifference, student
from twin.scenario import prepare as scenarios
from twin.settings.scenario_file import Scenario

Json = dict[str, Any]
Kind = str  # "followed" or "static"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Settings of every repetition; `time_scale`: seconds of the scenario in one of the lab."""

    scenario: str
    policy: str
    steps: int
    time_scale: float
    degradation: Degradation | None


@dataclass(frozen=True, slots=True)
class LoopPair:
    """A repetition of a trace: `start_s` of the window, and the figures of both trainings."""

    dataset: str
    synthetic: bool
    repetition: int
    start_s: float
    followed: Json
    static: Json

    @property
    def saved(self) -> float:
        """Share of the static training's seconds that the closed loop saves; negative: it takes longer."""
        return 1 - float(self.followed["seconds"]) / float(self.static["seconds"])

    @property
    def moves(self) -> int:
        """Moves of layers of the followed training."""
        return sum(one["sent_bytes"] > 0 for one in self.followed["moves"])


@dataclass(frozen=True, slots=True)
class TraceRow:
    """The pairs of one trace, and the mean share saved with its t interval over repetitions (95 %)."""

    dataset: str
    pairs: tuple[LoopPair, ...]
    saved: PairedDifference

    @property
    def title(self) -> str:
        """Name of the trace; synthetic ones are called so."""
        return f"{self.dataset} (synthetic)" if self.pairs[0].synthetic else self.dataset

    @property
    def interval(self) -> str:
        """The interval in percent; of a single repetition there is none."""
        if len(self.pairs) < 2:
            return "-"
        return f"{100 * self.saved.low:+.1f} to {100 * self.saved.high:+.1f}"


def scenario_on(name: str, dataset: str) -> Scenario:
    """Returns a scenario for a set; `lab` takes the sites of `quad-70b` for the set that has no others."""
    chosen = scenarios.load(name)
    if dataset != "cloudpilot-iperf3" or name != "lab":
        return chosen
    wide = scenarios.load("quad-70b")
    domains = tuple(
        domain.model_copy(update={"name": other.name})
        for domain, other in zip(chosen.cluster.domains, wide.cluster.domains, strict=False)
    )
    prices = chosen.cluster.usd_per_gb.model_copy(update={"sources": {}})
    cluster = chosen.cluster.model_copy(update={"domains": domains, "usd_per_gb": prices})
    return chosen.model_copy(update={"cluster": cluster, "wan": wide.wan})


def starts_s(window_s: float, repetitions: int) -> list[float]:
    """Returns the begins of the repetitions in a window, whole seconds at equal distances."""
    return [float(int(window_s * n / repetitions)) for n in range(repetitions)]


def miniature(store: Path, settings: LoopSettings, dataset: str, start_s: float) -> Miniature:
    """Returns the lab of one repetition."""
    scenario = scenario_on(settings.scenario, dataset)
    if settings.degradation is not None:
        scenario = settings.degradation.on(scenario, start_s)
    prepared = scenarios.prepare(scenario, store, dataset=dataset)
    return Miniature(prepared, settings.time_scale, start_s=start_s)


def pairs(
    store: Path,
    results: Path,
    settings: LoopSettings,
    datasets: Sequence[str],
    repetitions: int,
    tell: Callable[[str], None],
) -> Iterator[LoopPair]:
    """Yields every repetition of every trace; what `results` holds is not run again. `tell` gets a line for
    each training."""
    total, done = 2 * len(datasets) * repetitions, 0
    for dataset in datasets:
        window_s = miniature(store, settings, dataset, 0.0).prepared.wan.end_ns / 1e9
        for number, start_s in enumerate(starts_s(window_s, repetitions)):
            lab = miniature(store, settings, dataset, start_s)
            found: dict[Kind, Json] = {}
            for kind in ("followed", "static")[:: 1 if number % 2 == 0 else -1]:
                path = results / f"{_key(settings, dataset, start_s)}-{kind}.json"
                kept = path.exists()
                found[kind] = json.loads(path.read_text()) if kept else _run(kind, lab, store, settings)
                if not kept:
                    durable.replace(path, json.dumps(found[kind]).encode())
                done += 1
                how = "kept" if kept else "measured"
                tell(f"{done}/{total} {dataset} {number + 1} {kind}: {found[kind]['seconds']:.1f} s, {how}")
            note = is_synthetic(dataset, lab.prepared.wan.note)
            yield LoopPair(dataset, note, number, start_s, found["followed"], found["static"])


def _run(kind: Kind, lab: Miniature, store: Path, settings: LoopSettings) -> Json:
    if kind == "static":
        return static_figures(lab, settings.steps)
    when = time.time_ns()  # a loop that was stopped left its run behind: this one is another
    about = f"closed loop of the lab from {lab.start_s:g} s of {lab.prepared.dataset}, number {when}"
    return followed_figures(followed(lab, store, settings.policy, settings.steps, about))


def _key(settings: LoopSettings, dataset: str, start_s: float) -> str:
    """Name of a repetition: a digest of all that it is a function of but the machine and the code."""
    text = json.dumps([asdict(settings), dataset, start_s], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def rows(found: Sequence[LoopPair]) -> list[TraceRow]:
    """Returns a row for each trace, in the order of the pairs."""
    rows = []
    for dataset in dict.fromkeys(pair.dataset for pair in found):
        own = tuple(pair for pair in found if pair.dataset == dataset)
        rows.append(TraceRow(dataset, own, student("saved", np.array([pair.saved for pair in own]))))
    return rows


def to_json(settings: LoopSettings, found: Sequence[LoopPair]) -> Json:
    """Returns the answer, `twin.lab_loop/2`."""
    return {
        "schema": "twin.lab_loop/2",
        **asdict(settings),
        "interval": "t interval over repetitions, 95 %",
        "traces": [
            {
                "dataset": row.dataset,
                "saved": row.saved.mean,
                "saved_low": row.saved.low if len(row.pairs) > 1 else None,
                "saved_high": row.saved.high if len(row.pairs) > 1 else None,
                "moves": sum(pair.moves for pair in row.pairs),
                "pairs": [{**asdict(pair), "saved": pair.saved} for pair in row.pairs],
            }
            for row in rows(found)
        ],
    }
