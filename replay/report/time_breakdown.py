"""The report's lanes: where the time went, and which cycle of the pipeline bound it when."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from replay.report.run_data import Story
from replay.report.cost_model import Look, waiting
from replay.report.svg import named, percent, plain, time_unit

BINDINGS = 6
"""Binding cycles that have a lane of their own."""
LOST = (
    ("stalled", "iterations waiting for a dead link"),
    ("moving", "moves: copying and restart"),
    ("unfinished move", "a move that did not come to its end"),
    ("abandoned", "iterations given up for a move"),
    ("failure", "lost to failures"),
    ("waiting", "no plan could run"),
    ("horizon", "unfinished at the end of the window"),
)
"""(key in the story, meaning) of the time outside complete iterations."""


def time_spent(story: Story, looked: Sequence[Look] = ()) -> str:
    """A waterfall: from the simulated time, step by step, down to the time in which GPUs computed."""
    total = sum(story.time_s.values())
    if not total:
        return ""
    spent = [(story.time_s.get(key, 0.0), meaning, "lost") for key, meaning in LOST]
    steps = [*(entry for entry in spent if entry[0] > 0), *_waits(story, looked)]
    whole = "simulated time" if len(story.jobs) < 2 else "time of all jobs together"
    rows, left = [_step(whole, 0.0, total, total, "whole")], total
    for value, meaning, kind in steps:
        rows.append(_step(meaning, left - value, left, total, kind))
        left -= value
    rows.append(_step("computing, mean over the domains in the plan", 0.0, left, total, "work"))
    return f'<h2>Where the time went</h2><div class="fall">{"".join(rows)}</div>'


def _waits(story: Story, looked: Sequence[Look]) -> list[tuple[float, str, str]]:
    """What iterations waited for; split by the cost models where they are at hand."""
    waited = max(0.0, story.time_s.get("training", 0.0) - story.computing_s)
    shares = waiting(looked)
    if shares is None:
        return [(waited, "in iterations: waiting for other stages, messages, gradients", "wait")]
    return [
        (waited * shares[0], "in iterations: stages waiting for each other (by the model)", "wait"),
        (waited * shares[1], "in iterations: messages between domains, gradients (by the model)", "wait"),
    ]


def _step(meaning: str, low: float, high: float, total: float, css: str) -> str:
    share = (high - low) / total
    return _lane(meaning, f"{plain(high - low)} s · {percent(share)}", [_bar(low / total, share, css)])


def _lane(meaning: str, figures: str, bars: Iterable[str]) -> str:
    """A row: words, figures, and bars on a lane as wide as the whole."""
    return f'<div><span>{escape(meaning)}</span><b>{figures}</b><div class="lane">{"".join(bars)}</div></div>'


def _bar(start: float, share: float, css: str) -> str:
    return f'<i class="{css}" style="left:{start:.3%};width:{share:.3%}"></i>'


def binding(story: Story, looked: Sequence[Look]) -> str:
    """What bound the iteration time under the links as the filter saw them, decision by decision: a lane for
    each binding cycle, the one that held longest first."""
    if not looked:
        return ""
    held: dict[str, list[tuple[float, float]]] = {}
    ends = [look.time_s for look in looked[1:]] + [story.end_s]
    spans = zip((_named(look.binding, story.names) for look in looked), looked, ends, strict=True)
    for text, group in groupby(spans, key=lambda span: span[0]):
        same = list(group)
        held.setdefault(text, []).append((same[0][1].time_s, same[-1][2]))
    total = story.end_s - looked[0].time_s
    ranked = sorted(held, key=lambda text: -_length_s(held[text]))
    rows = [_held(text, held[text], story.end_s, total) for text in ranked[:BINDINGS]]
    if ranked[BINDINGS:]:
        rest = sorted(span for text in ranked[BINDINGS:] for span in held[text])
        rows.append(_held(f"all others, {len(ranked) - BINDINGS}", rest, story.end_s, total))
    scale, unit = time_unit(story.end_s)
    return (
        "<h2>What bound the pace</h2>"
        '<p class="small-text soft">The binding cycle over time, at each decision, under the links as the '
        "filter saw them. The slowest cycle of the pipeline decides its pace: one stage alone, or the round "
        "of stages and messages between two domains. Share: of the time.</p>"
        f'<div class="fall">{"".join(rows)}</div>'
        f'<p class="small-text soft end">from 0 to {story.end_s / scale:.3g} {unit}</p>'
    )


def _length_s(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)


def _held(text: str, spans: Sequence[tuple[float, float]], end_s: float, total_s: float) -> str:
    bars = (_bar(start / end_s, (end - start) / end_s, "work") for start, end in spans)
    return _lane(text, percent(_length_s(spans) / total_s), bars) if total_s > 0 else ""


def _named(text: str, names: Sequence[str]) -> str:
    """A binding with the names of the domains for their numbers; without the period, which differs always."""
    return named(re.sub(r"\s*[:,]?\s*[0-9.]+ (?:ns|us|ms|s)\b", "", text), names)
