"""`twin plan --plot`: the sites of a plan and their links, and the time line of one iteration.

Above, the pipeline as a chain of sites with GPUs, layers and stages, its links with their bandwidth at the
median state, the binding one in red, relays dashed. Below, every stage in the order of the pipeline:
forward and backward passes from the reference simulator under the same links.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ingest.core.errors import UsageError
from ingest.core.terminal import visible
from ingest.core.units import NS_PER_S
from ingest.lake.plot import FORMATS
from replay.planning.figures import PlanFigures
from replay.planning.record import Record
from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.core.plan_text import sizes_text
from twin.pipeline import reference_simulator

GIGA = 1e9
ACROSS = 5
"""Sites in a row of the chain; rows run forth and back."""
WIDTH, ROW, STAGE, MOST_STAGES = 11.0, 1.35, 0.16, 40
"""Inches: of the picture, of a row of sites, of a stage; and the stages beyond which they get narrower."""
PIXELS = 1500
"""Operations of a kind that lie closer than this part of the time line are drawn as one."""
COLOURS = {"forward": "#2b6ca3", "backward": "#b3541e", "weight": "#5a8f29", "update": "#94a3b8"}
RED, GREY = "#c81e1e", "#555555"
Bars = dict[tuple[int, str], list[tuple[float, float]]]
"""(start, length) in seconds of the operations of a kind in a stage."""


def picture(record: Record, chosen: PlanFigures, path: Path) -> bytes:
    """Returns the picture of a plan in the format that the name of `path` asks for; equal answers give equal
    bytes.

    Raises:
        UsageError: another format than SVG or PNG.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: the name must end in {' or '.join(FORMATS)}")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    form, constant = FORMATS[path.suffix.lower()]
    plan = chosen.running
    rows = -(-len(plan.shares) // ACROSS)
    heights = [ROW * rows + 0.2, STAGE * min(plan.stages, MOST_STAGES) + 1.0]
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "twin", "text.parse_math": False}):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.9), layout="constrained")
        sites, times = figure.subplots(2, 1, height_ratios=heights)
        _sites(sites, record, chosen)
        _time_line(times, record, chosen)
        figure.suptitle(_title(record, chosen), fontsize=9)
        out = io.BytesIO()
        figure.savefig(out, format=form, metadata=constant, dpi=120)
    return out.getvalue()


def _title(record: Record, chosen: PlanFigures) -> str:
    scenario = record.scenario
    speed = f"{chosen.mean_tokens_per_s:,.0f} tokens/s over the record"
    return visible(f"{scenario.model} in {scenario.name}: {speed}; {sizes_text(chosen.running)}")


def _sites(axis: Any, record: Record, chosen: PlanFigures) -> None:
    """Draws the chain of sites with its links."""
    plan = chosen.running
    at = {share.domain: _place(n) for n, share in enumerate(plan.shares)}
    axis.set_xlim(-0.5, min(ACROSS, len(at)) - 0.5)
    axis.set_ylim(min(y for _, y in at.values()) - 0.4, 0.85)
    axis.set_axis_off()
    for pair in pairwise(plan.order):
        _link(axis, at, chosen, pair, record.scenario.domains)
    stage = layer = 0
    for share in plan.shares:
        x, y = at[share.domain]
        words = _words(record, plan, share.domain, stage, layer)
        box = {"boxstyle": "round,pad=0.4", "fc": "white", "ec": GREY}
        axis.text(x, y, words, ha="center", va="center", fontsize=7, bbox=box, zorder=3)
        stage, layer = stage + share.pp, layer + share.layers
    idle = [name for k, name in enumerate(record.scenario.domains) if k not in at]
    if idle:
        more = f" and {len(idle) - 8} more" if len(idle) > 8 else ""
        axis.text(-0.48, 0.78, visible(f"not used: {', '.join(idle[:8])}{more}"), fontsize=7, color=GREY)


def _place(n: int) -> tuple[float, float]:
    """Returns the place of the n-th site: rows from left to right and back."""
    row, column = divmod(n, ACROSS)
    return float(ACROSS - 1 - column if row % 2 else column), -float(row)


def _words(record: Record, plan: Plan, domain: int, stage: int, layer: int) -> str:
    share = next(one for one in plan.shares if one.domain == domain)
    site = record.estimator.cluster.domains[domain]
    stages = f"stage {stage}" if share.pp == 1 else f"stages {stage}-{stage + share.pp - 1}"
    return visible(
        f"{site.name}\n{len(share.gpus)} of {site.gpus} {site.gpu.name}\n"
        f"layers {layer}-{layer + share.layers - 1}, {stages}\ntp {share.tp}"
    )


def _link(
    axis: Any, at: dict[int, tuple[float, float]], chosen: PlanFigures, pair: Pair, names: Sequence[str]
) -> None:
    """Draws a link of the chain with its bandwidths there and back, and the relays that messages take."""
    (x, y), (u, v) = at[pair[0]], at[pair[1]]
    binds = chosen.binding_link in (pair, pair[::-1])
    ways = (pair, pair[::-1])
    relays = sorted({route[1] for route in chosen.running.routes if (route[0], route[-1]) in ways})
    colour = RED if binds else GREY
    axis.plot([x, u], [y, v], color=colour, lw=2.5 if binds else 1.2, ls="--" if relays else "-", zorder=1)
    there, back = (chosen.links.bandwidth_bps[way] / GIGA for way in ways)
    lines = [f"{there:.3g} Gb/s" if abs(there - back) < 0.005 * there else f"{there:.3g} / {back:.3g} Gb/s"]
    if binds:
        lines.append(f"binds: {chosen.binding_gain:+.1%} if doubled")
    if relays:
        lines.append(f"relayed by {', '.join(visible(names[k]) for k in relays)}")
    left = x < 1
    place = ((x + u) / 2, y + 0.36) if y == v else (x + (0.03 if left else -0.03), (y + v) / 2)
    sides = (
        {"ha": "center", "va": "bottom"} if y == v else {"ha": "left" if left else "right", "va": "center"}
    )
    axis.text(*place, "\n".join(lines), fontsize=7, color=colour, zorder=4, **sides)


def _time_line(axis: Any, record: Record, chosen: PlanFigures) -> None:
    """Draws the operations of every stage of one iteration."""
    pipeline = None
    if chosen.running.sync is None:
        pipeline = record.estimator.pipeline(chosen.running, chosen.links)
    axis.set_xlabel(f"seconds of one iteration at the median state ({chosen.iteration_s:.4g} s)")
    if pipeline is None:
        axis.text(0.5, 0.5, "replicas: no pipeline over domains", ha="center", transform=axis.transAxes)
        return
    found: list[tuple[str, int, int, int, int]] = []
    done = reference_simulator.simulate(pipeline, 0, lambda *one: found.append(one))
    for stage, end_ns in enumerate(done.end_ns):
        found.append(("update", stage, -1, end_ns, end_ns + int(pipeline.tail[stage, 0])))
    bars = _joined(found, done.iteration_ns / NS_PER_S / PIXELS)
    for kind, colour in COLOURS.items():
        for stage in range(pipeline.stages):
            if bars.get((stage, kind)):
                axis.broken_barh(bars[stage, kind], (stage - 0.4, 0.8), facecolors=colour, linewidth=0)
    drawn = [kind for kind in COLOURS if any(key[1] == kind for key in bars)]
    axis.set_ylim(pipeline.stages - 0.4, -0.6)
    axis.set_xlim(0, done.iteration_ns / NS_PER_S)
    names, ends = _labels(record, chosen.running)
    axis.set_yticks([middle for middle, _ in names], [name for _, name in names], fontsize=7)
    for end in ends:
        axis.axhline(end - 0.5, color=GREY, lw=0.5, ls=":")
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "frameon": False}
    axis.legend(handles=_legend(drawn), fontsize=7, ncols=len(drawn), **place)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _joined(operations: Iterable[tuple[str, int, int, int, int]], gap_s: float) -> Bars:
    """Returns the bars of computing operations; those of a kind that nearly touch are one."""
    found: Bars = defaultdict(list)
    for kind, stage, _, begin, end in sorted(operations, key=lambda one: one[3]):
        if kind not in COLOURS or end <= begin:
            continue
        bars, start_s, end_s = found[stage, kind], begin / NS_PER_S, end / NS_PER_S
        if bars and start_s - sum(bars[-1]) < gap_s:
            bars[-1] = (bars[-1][0], end_s - bars[-1][0])
        else:
            bars.append((start_s, end_s - start_s))
    return found


def _labels(record: Record, plan: Plan) -> tuple[list[tuple[float, str]], list[int]]:
    """Returns the middle and the name of the stages of each site, and where one site ends."""
    names, ends, first = [], [], 0
    for share in plan.shares:
        names.append((first + (share.pp - 1) / 2, visible(record.scenario.domains[share.domain])))
        first += share.pp
        ends.append(first)
    return names, ends[:-1]


def _legend(kinds: Sequence[str]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=COLOURS[kind], label=kind) for kind in kinds]
