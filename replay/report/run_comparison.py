"""Sections that set a run beside others: every figure of two runs, and the front of time and money."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from replay.metrics.cost_time_points import Point
from replay.report.kpi_table import FIGURES
from replay.report.svg import HEIGHT, WIDTH, between, named, percent, plain

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.run.whatif import WhatIf

JUDGED = {
    "tokens": ("tokens, % of the other run's", 100.0),
    "utilisation": ("utilisation, points", 100.0),
    "usd_per_token": ("egress saved, USD per 10⁹ tokens", 1e9),
}
"""Key figure of a verdict -> words, factor."""


def versus(found: "WhatIf | None", names: Sequence[str]) -> str:
    """This run and another one: figures, differences, intervals, and where the two part; `names` are those of
    the domains."""
    if found is None:
        return ""
    base, other = found.base.to_json(), found.other.to_json()
    rows = "".join(_figure(words, base[name], other[name], scale) for name, words, scale in FIGURES)
    heads = "".join(
        f'<th class="n">{escape(text)}</th>'
        for text in (found.base_policy, found.policy, "difference", "share")
    )
    table = f'<div class="scroll"><table class="wrap"><tr><th>figure</th>{heads}</tr>{rows}</table></div>'
    judged = "".join(
        f'<tr><td>{JUDGED[v.kpi][0]}</td><td class="n">{_judged(v.kpi, v.mean)}</td>'
        f'<td class="n">{_judged(v.kpi, v.low)} … {_judged(v.kpi, v.high)}</td>'
        f"<td>{'better' if v.better else 'worse' if v.worse else 'not told apart'}</td></tr>"
        for v in found.verdicts
    )
    intervals = (
        '<div class="scroll"><table class="wrap"><tr><th>paired over blocks</th><th class="n">mean</th>'
        f'<th class="n">95 % interval</th><th>{escape(found.policy)} is</th></tr>{judged}</table></div>'
        '<p class="small-text soft">Mean over blocks of equal length; positive: better.</p>'
    )
    title = f"<h2>{escape(found.policy)} beside {escape(found.base_policy)}</h2>"
    return f"{title}{_parting(found, names)}{table}{intervals}"


def _judged(kpi: str, value: float) -> str:
    scaled = value * JUDGED[kpi][1]
    return plain(scaled, 3, "+")


def _figure(words: str, base: float | None, other: float | None, scale: float) -> str:
    cells = [_scaled(base, scale), _scaled(other, scale), "–", "–"]
    if base is not None and other is not None:
        more = 0.0 if math.isclose(base, other, rel_tol=1e-9) else other - base  # sums of many parts
        cells[2] = plain(more * scale, sign="+") if more else "0"
        cells[3] = percent(more / base if more and base else None, sign="+")
    shown = "".join(f'<td class="n">{cell}</td>' for cell in cells)
    return f"<tr><td>{words}</td>{shown}</tr>"


def _scaled(value: float | None, scale: float) -> str:
    return "–" if value is None else plain(value * scale)


def _parting(found: "WhatIf", names: Sequence[str]) -> str:
    split = found.divergence
    if split is None:
        return '<p class="small-text soft">The two never have different plans.</p>'
    base, other = (named(text, names) or "no plan" for text in (split.base, split.other))
    return (
        f'<p class="small-text soft">They part at decision {split.number}, {split.at_s:,.0f} s '
        f"({escape(split.trigger)}): {escape(found.base_policy)} has {escape(base)}, "
        f"{escape(found.policy)} {escape(other)}.</p>"
    )


def front(found: Sequence[Point], run: str, bound: tuple[float, float] | None = None) -> str:
    """Time against egress per token of every run in this world; the line joins those that nothing beats."""
    if len(found) < 2:
        return ""
    spots = [_Spot(p.usd_per_token, p.seconds_per_token, *_label(p, found, run)) for p in found]
    if bound is not None:
        spots.append(_Spot(*bound, "bound", "bound", "the clairvoyant bound"))
    frame = _Frame(*_room([spot.usd * 1e9 for spot in spots]), *_room([spot.seconds * 1e6 for spot in spots]))
    place = frame.place
    marks, labels = frame.grid()
    best = "L".join("{} {}".format(*place(p.usd_per_token, p.seconds_per_token)) for p in found if p.best)
    marks.append(f'<path class="line" d="M{best}"/>')
    for spot in spots:
        x, y = place(spot.usd, spot.seconds)
        title = f"<title>{escape(spot.title)}</title>"
        marks.append(f'<path class="dots big {spot.css}" d="M{x} {y}h0">{title}</path>')
    labels += _names([(*place(spot.usd, spot.seconds), spot) for spot in spots])
    svg = (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="time against egress per token">{"".join(marks)}</svg>'
    )
    axis = '<span class="ux">egress, USD per 10⁹ tokens</span>'
    plot = f'<div class="plot tall">{svg}{"".join(labels)}{axis}</div>'
    told = (
        "<strong>Lower left is better</strong>; the line joins the runs that no other beats in both, the "
        "large mark is this run"
    )
    caption = f"<figcaption><i>µs/token</i>{told}</figcaption>"
    return f'<h2>Time and money</h2><figure class="chart">{caption}{plot}</figure>'


@dataclass(frozen=True, slots=True)
class _Frame:
    """The axes: USD per 1e9 tokens from `left` to `right`, microseconds per token from `low` to `top`."""

    left: float
    right: float
    low: float
    top: float

    def place(self, usd: float, seconds: float) -> tuple[float, float]:
        """Inner coordinates of USD and seconds per token."""
        x = (usd * 1e9 - self.left) / (self.right - self.left)
        y = (seconds * 1e6 - self.low) / (self.top - self.low)
        return round(WIDTH * x, 1), round(HEIGHT * (1 - y), 1)

    def grid(self) -> tuple[list[str], list[str]]:
        """Lines of the grid and the figures beside them."""
        marks, labels = [], []
        for value in between(self.left, self.right, 4):
            x = self.place(value / 1e9, 0)[0]
            marks.append(f'<path class="grid" d="M{x} 0V{HEIGHT}"/>')
            labels.append(f'<span class="tx" style="left:{x / WIDTH:.2%}">{value:,.10g}</span>')
        for value in between(self.low, self.top, 5):
            y = self.place(0, value / 1e6)[1]
            marks.append(f'<path class="grid" d="M0 {y}H{WIDTH}"/>')
            labels.append(f'<span class="ty" style="top:{y / HEIGHT:.2%}">{value:,.10g}</span>')
        return marks, labels


def _room(values: Sequence[float]) -> tuple[float, float]:
    """Ends of an axis with some room around these values; never below nothing."""
    low, high = min(values), max(values)
    room = 0.15 * (high - low) or 0.1 * high or 1.0
    return max(0.0, low - room), high + room


@dataclass(frozen=True, slots=True)
class _Spot:
    """A mark of the plot."""

    usd: float
    seconds: float
    name: str
    css: str
    title: str


def _label(point: Point, found: Sequence[Point], run: str) -> tuple[str, str, str]:
    """Name, class and title; weights are part of the name where a policy was run with several."""
    several = len({p.weights for p in found if p.policy == point.policy}) > 1
    weights = f" ({'/'.join(f'{w:g}' for w in point.weights)})" if several else ""
    css = "this" if point.run_id == run else "front" if point.best else "raw"
    return point.policy + weights, css, point.run_id


def _names(placed: Sequence[tuple[float, float, _Spot]]) -> list[str]:
    """Names beside their marks; marks that lie together share one label, the bound has its own below."""
    groups: list[list[tuple[float, float, _Spot]]] = []
    under = []
    for x, y, spot in placed:
        if spot.css == "bound":  # nothing lies lower
            at = f"left:{x / WIDTH:.2%};top:{y / HEIGHT:.2%}"
            under.append(f'<div class="name under" style="{at}">{_spelt(spot)}</div>')
            continue
        near = (group for group in groups if abs(group[0][0] - x) < 60 and abs(group[0][1] - y) < 18)
        group = next(near, None)
        if group is None:
            groups.append([(x, y, spot)])
        else:
            group.append((x, y, spot))
    return [*map(_name, groups), *under]


def _spelt(spot: _Spot) -> str:
    return f'<span class="{spot.css}">{escape(spot.name)}</span>'


def _name(group: Sequence[tuple[float, float, _Spot]]) -> str:
    x, y, _ = group[0]
    names = ", ".join(_spelt(spot) for _, _, spot in group)
    side, at = ("left", x / WIDTH) if x < 0.7 * WIDTH else ("right", 1 - x / WIDTH)
    return f'<div class="name" style="{side}:calc({at:.2%} + 9px);top:{y / HEIGHT:.2%}">{names}</div>'
