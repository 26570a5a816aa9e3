"""Style of the benchmark plots: a panel a scenario, a colour and a mark a policy, bars with intervals.

Equal benchmarks give equal bytes: no date, no random ids.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.core.terminal import visible
from replay.bench.result import ScenarioResult
from replay.metrics.formatting import counted, is_synthetic
from replay.metrics.paired_comparison import PairedDifference

RC_PARAMS: Any = {
    "font.size": 9, "svg.hashsalt": "twin", "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
    "text.parse_math": False,  # "$" in names of data sets starts no formula
}  # fmt: skip
WIDTH, HEIGHT, LINE = 3.9, 2.9, 0.19
"""Inches of a panel, and of each row of bars beyond `MOST`."""
LETTERS = 12.5
"""Letters of a title an inch."""
COLUMNS = 3
MOST = 12
"""Bars of a panel; the best are kept."""
GREY = "#94a3b8"


@dataclass(frozen=True, slots=True)
class Style:
    """Colour and mark of a policy."""

    colour: str
    mark: str


OWN = {
    "hippo": Style("#0b7a75", "o"),
    "mpc": Style("#b3541e", "s"),
    "static": Style("#4b5563", "^"),
    "single": Style("#a08bc9", "D"),
    "greedy": Style("#c9962a", "v"),
}
BOUND = Style("#111827", "")
OTHERS = "others"
_SPARE = (Style("#2b6ca3", "P"), Style("#b83280", "X"), Style("#5a8f29", "<"), Style("#8a5a44", ">"))


def styles(policies: Sequence[str]) -> dict[str, Style]:
    """Returns the styles of policies that have their own; where there are too many, the rest is grey."""
    rest = [policy for policy in policies if policy not in OWN]
    known = OWN | (dict(zip(rest, _SPARE, strict=False)) if len(rest) <= len(_SPARE) else {})
    return {policy: known[policy] for policy in policies if policy in known}


@dataclass(frozen=True, slots=True)
class Panel:
    """Results of a scenario, and the title of their panel."""

    title: str
    result: ScenarioResult

    @classmethod
    def of(cls, result: ScenarioResult) -> "Panel":
        """Returns a panel named after scenario and data set, with the number of seeds."""
        seeds = counted(len(result.worlds), "seed")
        return cls(f"{result.scenario.name} on {result.dataset}, {seeds}", result)

    @property
    def heading(self) -> str:
        """The title; a second line marks synthetic links."""
        synthetic = is_synthetic(self.result.dataset, self.result.note)
        return f"{self.title}\nSYNTHETIC links" if synthetic else self.title


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval; of a single world both ends are the value."""

    name: str
    value: PairedDifference
    colour: str


def figure(
    panels: Sequence[Panel], title: str, draw: Callable[[Any, ScenarioResult], None], rows: int = 0
) -> bytes:
    """Returns an SVG with a panel for each scenario and one legend; `rows`: most bars of any panel."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    height = HEIGHT + LINE * max(0, rows - MOST)
    with mpl.rc_context(RC_PARAMS):
        made = Figure(figsize=(WIDTH * max(columns, 1.5), height * lines + 0.6), layout="constrained")
        axes = made.subplots(lines, columns, squeeze=False)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        handles: dict[str, Any] = {}
        for axis, panel in zip(axes.flat, panels, strict=False):
            draw(axis, panel.result)
            axis.set_title(visible(panel.heading), fontsize=9, parse_math=False)
            if axis.get_legend() is None:
                handles |= {name: line for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
        if handles:
            wide = min(len(handles), 3 * columns)
            made.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=wide)
        made.suptitle(textwrap.fill(title, int(LETTERS * made.get_figwidth())), fontsize=9)
        out = io.BytesIO()
        made.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def bars(axis: Any, rows: Sequence[Bar], unit: str, digits: int = 1) -> None:
    """Draws bars from 0 with their intervals, the first on top, each with its value as text."""
    most = max((abs(row.value.high) for row in rows), default=0.0) or 1.0
    for place, row in enumerate(rows):
        value = row.value
        axis.barh(place, value.mean, color=row.colour)
        whiskers(axis, place, value, BOUND.colour, "")
        axis.text(max(value.high, 0.0), place, f"  {value.mean:.{digits}f}", va="center", fontsize=7)
    names(axis, rows)
    axis.set_xlim(min(0.0, *(1.1 * row.value.low for row in rows)), 1.22 * most)
    axis.set_xlabel(unit)


def whiskers(axis: Any, place: float, value: PairedDifference, colour: str, mark: str) -> None:
    """Draws a horizontal interval with a mark at the mean."""
    sides = [[value.mean - value.low], [value.high - value.mean]]
    if value.high > value.low or mark:
        axis.errorbar([value.mean], [place], xerr=sides, fmt=mark, color=colour, capsize=2, lw=1, ms=4)


def names(axis: Any, rows: Sequence[Bar]) -> None:
    """Labels the rows, the first on top."""
    axis.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.grid(False, axis="y")
