"""Sections that compare the run: all policies of its world, one other run, the front of time and money."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from replay.metrics.cost_time_points import CostTimePoint
from replay.metrics.paired_comparison import PairedDifference
from replay.report.drawing.formatting import NONE, date, percent, plain, scaled
from replay.report.drawing.section import Section, section
from replay.report.drawing.svg import HEIGHT, WIDTH, Chart, PointLabel
from replay.report.kpi_table import FIGURES, INTERVAL, spread

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.bench.comparison import Comparison, ComparisonRow
    from replay.run.whatif import WhatIf

VERDICT_FIGURES = {
    "tokens": ("tokens, % of the other run's", 100.0),
    "utilisation": ("utilisation, points", 100.0),
    "usd_per_token": ("egress saved, USD per 10⁹ tokens", 1e9),
}
"""Key figure of a verdict -> name on the page, factor."""
REST = ("regret", "utilisation", "MFU", "USD/10⁹ tokens", "egress, USD", "moves", "p99, ms")
"""Titles of the columns after those of time."""


def policies(
    result: "Comparison | None", run_id: str, saved: Mapping[str, PairedDifference] | None = None
) -> Section | None:
    """All policies of one world and the bound; this run in bold. `saved`: by run, the share of static's time
    per token that it saves, with its interval."""
    if result is None:
        return None
    single = any(row.reduction_vs_single is not None for row in result.rows if row.kpis is not None)
    titles = ("policy", "µs/token", "vs static", INTERVAL, *(["vs single"] if single else []), *REST)
    rows = [
        {
            "css": "this" if row.run_id == run_id else "",
            "policy": row.policy,
            "problem": row.problem or "",
            "cells": _policy(row, (saved or {}).get(row.run_id or ""), single) if row.kpis else None,
        }
        for row in result.rows
    ]
    if result.bound is not None:
        name = "clairvoyant bound" + ("" if result.bound.exact else " (plans tried)")
        rows.append({"css": "bound", "policy": name, "problem": "", "cells": _bound(result, len(titles))})
    return section("policies", "All policies in this world", titles=titles, rows=rows)


def _policy(row: "ComparisonRow", saved: PairedDifference | None, single: bool) -> list[str]:
    kpis = row.kpis
    assert kpis is not None
    vs_static = row.reduction_vs_static if row.policy != "static" else None
    vs_single = row.reduction_vs_single if row.policy != "single" else None
    return [
        scaled(kpis.time_per_token_s, 1e6),
        percent(vs_static, sign="+"),
        NONE if saved is None or not saved.estimated else f"{spread(saved, 100.0, '+')}\u202f%",
        *([percent(vs_single, sign="+")] if single else []),
        percent(row.regret),
        percent(kpis.utilisation),
        percent(kpis.mfu),
        ("≥ " if kpis.unpriced else "") + scaled(kpis.total_usd_per_token, 1e9),
        f"{kpis.egress_usd:,.2f}",
        f"{kpis.moves}",
        scaled(kpis.decision_p99_s, 1e3, digits=3),
    ]


def _bound(result: "Comparison", columns: int) -> list[str]:
    bound = result.bound
    assert bound is not None
    return [
        plain(result.wall_s / bound.tokens * 1e6) if bound.tokens else NONE,
        *[NONE] * (columns - 2 - len(REST)),
        "0",
        percent(bound.utilisation),
        NONE,
        NONE,
        f"{bound.egress_usd:,.2f}",
        f"{max(0, len(bound.timeline) - 1)}",
        NONE,
    ]


def versus(
    found: "WhatIf | None", domains: Sequence[str], origin_s: float = 0.0, *, parent: bool = False
) -> Section | None:
    """This run and another one: figures, differences, intervals, and the decision where their plans part;
    `origin_s`: begin of the run, seconds since 1970. `parent`: the other is the one that this what-if
    branches off."""
    if found is None:
        return None
    policy, base_policy = found.policy, found.base_policy
    if parent:
        policy, base_policy = f"this run ({policy})", f"its parent ({base_policy})"
    base, other = found.base.to_json(), found.other.to_json()
    split = found.divergence
    return section(
        "versus",
        "Compared with its parent" if parent else f"{policy} beside {base_policy}",
        policy=policy,
        base_policy=base_policy,
        split=split,
        split_at=split and date(origin_s + split.at_s, seconds=True),
        plans=split and [text or "no plan" for text in (split.base, split.other)],
        figures=[(text, *_difference(base[name], other[name], factor)) for name, text, factor in FIGURES],
        verdicts=[_verdict(one) for one in found.verdicts],
    )


def _verdict(found: PairedDifference) -> tuple[str, str, str, str]:
    text, factor = VERDICT_FIGURES[found.kpi]
    verdict = "better" if found.better else "worse" if found.worse else "no different"
    return text, plain(found.mean * factor, 3, "+"), spread(found, factor, "+"), verdict


def _difference(base: float | None, other: float | None, factor: float) -> tuple[str, str, str, str]:
    """Both values, their difference, and its share of the base."""
    values = scaled(base, factor), scaled(other, factor)
    if base is None or other is None:
        return *values, NONE, NONE
    if math.isclose(base, other, rel_tol=1e-9):  # sums of many parts differ in the last digits
        return *values, "0", NONE
    share = (other - base) / base if base else None
    return *values, plain((other - base) * factor, sign="+"), percent(share, sign="+")


def front(
    found: Sequence[CostTimePoint], run_id: str, bound: tuple[float, float] | None = None
) -> Section | None:
    """Time against egress per token of every run in this world, and its Pareto front.

    `bound` is (USD, seconds) per token of the clairvoyant bound.
    """
    if len(found) < 2:
        return None
    points = [(p.usd_per_token * 1e9, p.seconds_per_token * 1e6, *_label(p, found, run_id)) for p in found]
    if bound is not None:
        points.append((bound[0] * 1e9, bound[1] * 1e6, "bound", "bound", "the clairvoyant bound"))
    left, right = _padded([usd for usd, *_ in points])
    low, top = _padded([seconds for _, seconds, *_ in points])
    chart = Chart(
        right, top, "µs/token", "Lower left is better",
        "; the line joins the runs that no other beats in both, the large mark is this run",
        "time against egress per token", low, left, "egress, USD per 10⁹ tokens", "tall",
    )  # fmt: skip
    chart.line([point[:2] for point, run in zip(points, found, strict=False) if run.best])
    for usd, seconds, _, css, title in points:
        chart.dots([(usd, seconds)], f"big {css}", title)
    chart.point_labels = _point_labels([(chart.x(p[0]), chart.y(p[1]), p[2], p[3]) for p in points])
    return section("front", "Time and money", points=chart)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """Ends of an axis with some room around these values, not below 0."""
    low, high = min(values), max(values)
    room = 0.15 * (high - low) or 0.1 * high or 1.0
    return max(0.0, low - room), high + room


def _label(point: CostTimePoint, found: Sequence[CostTimePoint], run_id: str) -> tuple[str, str, str]:
    """Name, class and title; weights are part of the name where a policy was run with several."""
    several = len({p.weights for p in found if p.policy == point.policy}) > 1
    weights = f" ({'/'.join(f'{w:g}' for w in point.weights)})" if several else ""
    css = "this" if point.run_id == run_id else "front" if point.best else "raw"
    return point.policy + weights, css, point.run_id


def _point_labels(placed: Sequence[tuple[float, float, str, str]]) -> list[PointLabel]:
    """Names beside their points; points close together share one label, the bound has its own below it."""
    groups: list[tuple[float, float, list[tuple[str, str]]]] = []
    labels = []
    for x, y, name, css in placed:
        if css == "bound":  # nothing lies lower
            position = f"left:{x / WIDTH:.2%};top:{y / HEIGHT:.2%}"
            labels.append(PointLabel(position, ((name, css),), below=True))
            continue
        near = (names for left, top, names in groups if abs(left - x) < 60 and abs(top - y) < 18)
        names = next(near, None)
        if names is None:
            groups.append((x, y, [(name, css)]))
        else:
            names.append((name, css))
    for x, y, names in groups:
        side, offset = ("left", x / WIDTH) if x < 0.7 * WIDTH else ("right", 1 - x / WIDTH)
        position = f"{side}:calc({offset:.2%} + 9px);top:{y / HEIGHT:.2%}"
        labels.append(PointLabel(position, tuple(names)))
    return labels
