"""Sections of lanes: use of the simulated time, and the limiting resource over time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from replay.report.cost_model import CostModelReading, waiting
from replay.report.drawing.formatting import date, percent, plain
from replay.report.drawing.section import Section, section
from replay.report.run_data import RunData

BINDINGS = 6
"""Limiting resources that have a lane of their own."""
LOST = (
    ("stalled", "iterations waiting for a dead link"),
    ("moving", "moves: copying and restart"),
    ("unfinished move", "moves that were not completed"),
    ("abandoned", "iterations given up for a move"),
    ("failure", "lost to failures"),
    ("waiting", "no plan could run"),
    ("horizon", "unfinished at the end of the window"),
)
"""(key of `RunData.time_s`, meaning) of the time outside complete iterations."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A row: text, figures, and bars (CSS class, start, length) as shares of the lane."""

    text: str
    figures: str
    bars: list[tuple[str, float, float]]


def time_spent(run: RunData, readings: Sequence[CostModelReading] = ()) -> Section | None:
    """A waterfall: from the simulated time, step by step, down to the time in which GPUs computed."""
    total = sum(run.time_s.values())
    if not total:
        return None
    lost = [(run.time_s.get(key, 0.0), meaning, "lost") for key, meaning in LOST]
    steps = [*(step for step in lost if step[0] > 0), *_waits(run, readings)]
    whole = "simulated time" if len(run.jobs) < 2 else "time of all jobs together"
    lanes, left = [_step(whole, 0.0, total, total, "whole")], total
    for value, meaning, css in steps:
        lanes.append(_step(meaning, left - value, left, total, css))
        left -= value
    lanes.append(_step("computing, mean over the domains in the plan", 0.0, left, total, "work"))
    return section("lanes", "Where the time went", lanes=lanes, intro="", end="")


def _waits(run: RunData, readings: Sequence[CostModelReading]) -> list[tuple[float, str, str]]:
    """Waiting within iterations; split by the cost models where they are available."""
    waited = max(0.0, run.time_s.get("training", 0.0) - run.computing_s)
    shares = waiting(readings)
    if shares is None:
        return [(waited, "in iterations: waiting for other stages, messages, gradients", "wait")]
    return [
        (waited * shares[0], "in iterations: stages waiting for each other (by the model)", "wait"),
        (waited * shares[1], "in iterations: messages between domains, gradients (by the model)", "wait"),
    ]


def _step(meaning: str, low: float, high: float, total: float, css: str) -> Lane:
    share = (high - low) / total
    return Lane(meaning, f"{plain(high - low)} s · {percent(share)}", [(css, low / total, share)])


BINDING_INTRO = (
    "What limits the iteration at each decision, under the links as the filter estimated them: the resource "
    "without which an iteration would be shortest, found by estimating it again with each resource free. "
    "Share: of the time; then the mean time of an iteration that would be saved without it."
)


def binding(run: RunData, readings: Sequence[CostModelReading]) -> Section | None:
    """The limiting resource, decision by decision: a lane each, the longest limiting first."""
    if not readings:
        return None
    held: dict[str, list[tuple[float, float]]] = {}
    ends = [reading.time_s for reading in readings[1:]] + [run.end_s]
    spans = zip((one.limit for one in readings), readings, ends, strict=True)
    for text, group in groupby(spans, key=lambda span: span[0]):
        same = list(group)
        held.setdefault(text, []).append((same[0][1].time_s, same[-1][2]))
    total_s = run.end_s - readings[0].time_s
    ranked = sorted(held, key=lambda text: -_length_s(held[text]))
    rows = [(text, held[text]) for text in ranked[:BINDINGS]]
    if ranked[BINDINGS:]:
        rest = sorted(span for text in ranked[BINDINGS:] for span in held[text])
        rows.append((f"all others, {len(ranked) - BINDINGS}", rest))
    lanes = [_held(text, spans, run.end_s, total_s, readings) for text, spans in rows if total_s > 0]
    end = f"from {date(run.origin_s)} to {date(run.origin_s + run.end_s)} UTC"
    return section("lanes", "Bottleneck over time", lanes=lanes, intro=BINDING_INTRO, end=end)


def _length_s(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)


def _held(
    text: str, spans: Sequence[tuple[float, float]], end_s: float, total_s: float,
    readings: Sequence[CostModelReading],
) -> Lane:  # fmt: skip
    bars = [("work", start / end_s, (end - start) / end_s) for start, end in spans]
    saved = [one.saved for one in readings if one.limit == text]
    figures = percent(_length_s(spans) / total_s)
    if saved:
        figures += f" · −{percent(sum(saved) / len(saved))} without it"
    return Lane(text, figures, bars)
