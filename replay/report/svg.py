"""Charts: marks as SVG stretched over a box, labels as HTML on top, so that text keeps its size on a phone.

`templates/macros.html.j2` draws a `Chart`. Every string in the SVG is escaped by `Markup.format`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from replay.report.formatting import number, time_unit

WIDTH, HEIGHT = 1000.0, 300.0
"""Inner coordinates of every plot; the page stretches them."""
PATH = Markup('<path class="{}" d="{}">{}</path>')
RECT = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}">{}</rect>')
TITLE = Markup("<title>{}</title>")
SVG = Markup('<svg viewBox="0 0 1000 300" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>')
Legend = Sequence[tuple[str, str]]
"""(name, CSS class of its colour)."""


@dataclass(frozen=True, slots=True)
class PointLabel:
    """Names beside a point of a plot, each with its CSS class, at a CSS position."""

    position: str
    names: tuple[tuple[str, str], ...]
    below: bool = False


@dataclass
class Chart:
    """A plot with its caption: x from `left` to `right`, y from `low` to `top` in `unit`.

    x is in seconds unless `axis` names its unit; `label` is the text for screen readers.
    """

    right: float
    top: float
    unit: str
    title: str = ""
    note: str = ""
    label: str = ""
    low: float = 0.0
    left: float = 0.0
    axis: str = ""
    size: str = ""  # small, tall or neither
    legend: Legend = ()
    marks: list[Markup] = field(default_factory=list)
    point_labels: list[PointLabel] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Inner coordinate of a time, or of a value on the axis."""
        return round(WIDTH * _share(value, self.left, self.right), 2)

    def y(self, value: float) -> float:
        """Inner coordinate of a value."""
        return round(HEIGHT * (1 - _share(value, self.low, self.top)), 2)

    def line(self, points: Iterable[Sequence[float]], css: str = "", *, step: bool = False) -> None:
        """Draws a line through (time, value, ...) points; with `step` a value holds until the next point."""
        path = ""
        for time_s, value, *_ in points:
            x, y = self.x(time_s), self.y(value)
            path += f"H{x}V{y}" if path and step else f"{'L' if path else 'M'}{x} {y}"
        self._path(f"line {css}", path + f"H{WIDTH}" if path and step else path)

    def band(self, points: Sequence[tuple[float, float, float]]) -> None:
        """Fills the area between low and high of (time, low, high) points."""
        if points:
            upper = [f"{self.x(t)} {self.y(high)}" for t, _, high in points]
            lower = [f"{self.x(t)} {self.y(low)}" for t, low, _ in reversed(points)]
            self._path("area", f"M{'L'.join(upper + lower)}Z")

    def dots(self, points: Iterable[Sequence[float]], css: str = "", title: str = "") -> None:
        """Draws points of constant size: lines of no length with round ends."""
        self._path(f"dots {css}", "".join(f"M{self.x(p[0])} {self.y(p[1])}h0" for p in points), title)

    def box(self, start_s: float, end_s: float, low: float, high: float, css: str, title: str = "") -> None:
        """Draws a rectangle; `title` is shown under the pointer."""
        x, y = self.x(start_s), self.y(high)
        width, height = round(self.x(end_s) - x, 2), round(self.y(low) - y, 2)
        self.marks.append(RECT.format(css, x, y, width, height, TITLE.format(title) if title else ""))

    def moments(self, times_s: Iterable[float], css: str, title: str) -> None:
        """Draws vertical lines; those on the same pixel become one."""
        places = sorted({round(self.x(time_s)) for time_s in times_s})
        self._path(f"line {css}", "".join(f"M{x} 0V{HEIGHT:g}" for x in places), title)

    def _path(self, css: str, path: str, title: str = "") -> None:
        if path:
            self.marks.append(PATH.format(css, path, TITLE.format(title) if title else ""))

    @property
    def svg(self) -> Markup:
        """Grid and marks."""
        grid = "".join(f"M0 {self.y(value)}H{WIDTH}" for value in self._y_ticks())
        grid += "".join(f"M{self.x(value)} 0V{HEIGHT}" for value in self._x_ticks())
        marks = Markup("").join([PATH.format("grid", grid, ""), *self.marks])
        return SVG.format(self.label or f"{self.title}{self.note}", marks)

    @property
    def y_labels(self) -> list[tuple[str, str]]:
        """(offset from the top, figure) of each grid line."""
        values = self._y_ticks()
        texts = [number(value) for value in values]
        if len({*texts}) < len(texts):  # three digits are too few
            texts = [f"{value:,.10g}" for value in values]
        return [(f"{self.y(value) / HEIGHT:.2%}", text) for value, text in zip(values, texts, strict=True)]

    @property
    def x_labels(self) -> list[tuple[str, str, bool]]:
        """(offset from the left, figure, whether it stands at the right edge) of each grid line."""
        scale = self._x_unit()[0]
        places = [(self.x(value) / WIDTH, f"{value / scale:,.10g}") for value in self._x_ticks()]
        return [(f"{place:.2%}", text, place > 0.97) for place, text in places]

    @property
    def x_unit(self) -> str:
        """Unit of the axis."""
        return self._x_unit()[1]

    def _x_unit(self) -> tuple[float, str]:
        return (1.0, self.axis) if self.axis else time_unit(self.right)

    def _x_ticks(self) -> list[float]:
        scale = self._x_unit()[0]
        wanted = 3 if self.size == "small" else 6
        return [scale * value for value in ticks(self.right / scale, wanted, self.left / scale)]

    def _y_ticks(self) -> list[float]:
        return ticks(self.top, {"small": 3, "tall": 5}.get(self.size, 4), self.low)


def _share(value: float, low: float, high: float) -> float:
    """Position of `value` between `low` and `high`, clipped to [0, 1]."""
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def ticks(top: float, wanted: int, low: float = 0.0) -> list[float]:
    """About `wanted` round numbers from `low` to `top`; `low` alone where there is no range."""
    if not top > low:
        return [low]
    raw = (top - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(top / step + 1e-9)
    return [round(step * n, 12) for n in range(first, last + 1)]


def colour(k: int) -> str:
    """CSS class of the k-th colour; they repeat after eight."""
    return f"k{k % 8}"
