"""Charts that the page's script draws with hover and zoom: columns of numbers as JSON, and words for them.

Columns keep a page small: times are whole numbers of `quantum` seconds, each less the one before, and values
have `DIGITS` significant digits. `templates/report.js` adds the times up again and draws them with uPlot.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from markupsafe import Markup

from replay.report.drawing.formatting import plain

STEPS = 20_000
"""Least number of steps of time along an axis; a screen has fewer pixels."""
DIGITS = 5
PREFIXES = {
    "bit/s": ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")),
    "tokens": ((1e9, "billion "), (1e6, "million ")),
}
"""Unit -> (size, prefix) of its multiples, from the largest; others are shown as they are."""
Colours = Sequence[tuple[str, str]]
"""(name, CSS variable of its colour)."""


@dataclass
class LiveChart:
    """A chart with its caption: x from 0 to `right`, y from `low` to `top` in `unit`.

    x is seconds after the start of the run unless `axis` names its unit. Colours are names of CSS variables.
    Boxes, moments and ticks carry the words that are shown while the pointer, or the arrow keys, are there.
    """

    right: float
    top: float
    unit: str
    title: str = ""
    note: str = ""
    low: float = 0.0
    axis: str = ""
    size: str = ""  # small or not
    synthetic: bool = False
    legend: Colours = ()
    marks: list[dict[str, Any]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # what a screen reader says of the marks

    def line(
        self,
        points: Iterable[Sequence[float | None]],
        name: str,
        colour: str = "strong",
        *,
        step: bool = False,
    ) -> None:
        """Adds a line through (x, value) points; with `step` a value holds until the next, None is a gap."""
        self._series("step" if step else "line", points, name, colour)

    def dots(self, points: Iterable[Sequence[float | None]], name: str, colour: str = "strong") -> None:
        """Adds points of constant size."""
        self._series("dots", points, name, colour)

    def band(self, points: Iterable[Sequence[float | None]], name: str, colour: str = "strong") -> None:
        """Adds a line with an area around it: (x, value, low, high) points."""
        self._series("band", points, name, colour)

    def box(self, start: float, end: float, low: float, high: float, colour: str, title: str) -> None:
        """Adds a rectangle."""
        place = [self._step(start), self._step(end), _short(low / self.factor), _short(high / self.factor)]
        self.marks.append({"kind": "box", "at": place, "colour": colour, "name": title})

    def moments(self, at: Iterable[float], colour: str, title: str) -> None:
        """Adds vertical lines; those on the same step become one."""
        self._at("moments", at, colour, title)

    def ticks(self, at: Iterable[float], colour: str, title: str) -> None:
        """Adds small triangles on the lower edge, for what happens beside the curves; those on the same step
        become one."""
        self._at("ticks", at, colour, title)

    def _at(self, kind: str, at: Iterable[float], colour: str, title: str) -> None:
        steps = sorted({self._step(one) for one in at})
        if steps:
            self.marks.append({"kind": kind, "at": steps, "colour": colour, "name": title})
            self.words.append(f"{title}: {len(steps)} times")

    def _series(self, kind: str, points: Iterable[Sequence[float | None]], name: str, colour: str) -> None:
        columns = [list(column) for column in zip(*points, strict=True)]
        if not columns:
            return
        steps = [self._step(x) for x in columns[0] if x is not None]
        ys = [[None if v is None else _short(v / self.factor) for v in column] for column in columns[1:]]
        deltas = [step - before for before, step in zip([0, *steps], steps, strict=False)]
        self.marks.append({"kind": kind, "name": name, "colour": colour, "dx": deltas, "ys": ys})
        if known := [value for value in ys[0] if value is not None]:
            ends = f"{plain(min(known))} to {plain(max(known))}, mean {plain(fmean(known))}"
            self.words.append(f"{name}: {ends}" if name != self.title else ends)

    @property
    def factor(self) -> float:
        """Size of the shown unit in units of the values: 1e9 where bit/s are shown as Gbit/s."""
        return self._prefix()[0]

    @property
    def shown_unit(self) -> str:
        """The unit with its metric prefix."""
        return self._prefix()[1] + self.unit

    def _prefix(self) -> tuple[float, str]:
        return next(
            (one for one in PREFIXES.get(self.unit, ()) if abs(self.top) >= 0.9995 * one[0]), (1.0, "")
        )

    @property
    def quantum(self) -> float:
        """Length of a step of x: a power of ten, at least `STEPS` of them along the axis."""
        return 10.0 ** math.floor(math.log10(self.right / STEPS)) if self.right > 0 else 1.0

    def _step(self, x: float) -> int:
        return round(min(max(x, 0.0), self.right) / self.quantum)

    @property
    def label(self) -> str:
        """The chart in words."""
        return f"{self.title}{self.note}, in {self.shown_unit or 'its own unit'}. {'; '.join(self.words)}."

    @property
    def columns(self) -> Markup:
        """The data as JSON that may stand inside a script element."""
        data = {
            "right": self._step(self.right), "quantum": self.quantum, "axis": self.axis,
            "unit": self.shown_unit, "low": _short(self.low / self.factor),
            "top": _short(self.top / self.factor), "marks": self.marks,
        }  # fmt: skip
        return embedded(data)


def variable(k: int) -> str:
    """Name of the CSS variable of the k-th colour; they repeat after eight."""
    return f"c{k % 8}"


def embedded(data: object) -> Markup:
    """Returns data as compact JSON in which no tag can begin, for a script element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _short(value: float) -> float | int:
    """A number with `DIGITS` significant digits, whole where it is."""
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
