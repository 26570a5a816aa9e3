"""How the plots of a benchmark look: a panel a scenario, a colour and a mark a policy, bars with intervals.

Equal benchmarks give equal bytes: no date, no random ids.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replay.bench.result import Chapter
from replay.metrics.paired_comparison import Verdict
from replay.metrics.formatting import counted, made_up

LOOK: Any = {
    "font.size": 9, "svg.hashsalt": "twin", "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
    "text.parse_math": False,  # names of data sets are no formulas
}  # fmt: skip
WIDTH, HEIGHT, LINE = 3.9, 2.9, 0.19
"""Inches: of a panel, and of a row of bars beyond those that fit into it."""
LETTERS = 12.5
"""Of a title, an inch."""
COLUMNS = 3
MOST = 12
"""Bars of a panel: the best."""
GREY = "#94a3b8"


@dataclass(frozen=True, slots=True)
class Style:
    """How a policy is drawn."""

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
    """Those of policies that are told apart; where there are too many the rest is grey."""
    rest = [policy for policy in policies if policy not in OWN]
    told = OWN | (dict(zip(rest, _SPARE, strict=False)) if len(rest) <= len(_SPARE) else {})
    return {policy: told[policy] for policy in policies if policy in told}


@dataclass(frozen=True, slots=True)
class Panel:
    """A chapter under the title that its panel has."""

    title: str
    chapter: Chapter

    @classmethod
    def of(cls, chapter: Chapter) -> "Panel":
        """Under the names of its scenario and data set, with how many seeds there are."""
        seeds = counted(len(chapter.worlds), "seed")
        return cls(f"{chapter.scenario.name} on {chapter.dataset}, {seeds}", chapter)

    @property
    def heading(self) -> str:
        """The title, and in a line of its own that links are made up, where they are."""
        synthetic = made_up(self.chapter.dataset, self.chapter.note)
        return f"{self.title}\nSYNTHETIC links" if synthetic else self.title


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval; of a single world both ends are the value."""

    name: str
    value: Verdict
    colour: str


def figure(panels: Sequence[Panel], title: str, draw: Callable[[Any, Chapter], None], rows: int = 0) -> bytes:
    """SVG with a panel for each chapter and one legend; `rows` are the most bars that a panel will have."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    height = HEIGHT + LINE * max(0, rows - MOST)
    with mpl.rc_context(LOOK):
        made = Figure(figsize=(WIDTH * max(columns, 1.5), height * lines + 0.6), layout="constrained")
        axes = made.subplots(lines, columns, squeeze=False)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        handles: dict[str, Any] = {}
        for axis, panel in zip(axes.flat, panels, strict=False):
            draw(axis, panel.chapter)
            axis.set_title(panel.heading, fontsize=9)
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
    """Bars from 0 with their intervals, the first on top, each with its value in figures."""
    most = max((abs(row.value.high) for row in rows), default=0.0) or 1.0
    for place, row in enumerate(rows):
        value = row.value
        axis.barh(place, value.mean, color=row.colour)
        whiskers(axis, place, value, BOUND.colour, "")
        axis.text(max(value.high, 0.0), place, f"  {value.mean:.{digits}f}", va="center", fontsize=7)
    names(axis, rows)
    axis.set_xlim(min(0.0, *(1.1 * row.value.low for row in rows)), 1.22 * most)
    axis.set_xlabel(unit)


def whiskers(axis: Any, place: float, value: Verdict, colour: str, mark: str) -> None:
    """An interval across, with a mark at the mean."""
    sides = [[value.mean - value.low], [value.high - value.mean]]
    if value.high > value.low or mark:
        axis.errorbar([value.mean], [place], xerr=sides, fmt=mark, color=colour, capsize=2, lw=1, ms=4)


def names(axis: Any, rows: Sequence[Bar]) -> None:
    """The names of rows beside them, the first on top."""
    axis.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.grid(False, axis="y")
