"""Still charts: marks as SVG stretched over a box, labels as HTML on top: text keeps its size on a phone.

`templates/macros.html.j2` draws a `Chart`. Every string in the SVG is escaped by `Markup.format`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from replay.report.drawing.formatting import number

WIDTH, HEIGHT = 1000.0, 300.0
"""Inner coordinates of every plot; the page stretches them."""
PATH = Markup('<path class="{}" d="{}">{}</path>')
TITLE = Markup("<title>{}</title>")
SVG = Markup('<svg viewBox="0 0 1000 300" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>')


@dataclass(frozen=True, slots=True)
class PointLabel:
    """Names beside a point of a plot, each with its CSS class, at a CSS position."""

    position: str
    names: tuple[tuple[str, str], ...]
    below: bool = False


@dataclass
class Chart:
    """A plot with its caption: x from `left` to `right` in `axis`, y from `low` to `top` in `unit`.

    `label` is the text for screen readers.
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
    size: str = ""  # tall or not
    marks: list[Markup] = field(default_factory=list)
    point_labels: list[PointLabel] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Inner coordinate of a value on the axis."""
        return round(WIDTH * _share(value, self.left, self.right), 2)

    def y(self, value: float) -> float:
        """Inner coordinate of a value."""
        return round(HEIGHT * (1 - _share(value, self.low, self.top)), 2)

    def line(self, points: Iterable[Sequence[float]], css: str = "") -> None:
        """Draws a line through (x, value, ...) points."""
        places = [f"{self.x(x)} {self.y(value)}" for x, value, *_ in points]
        self._path(f"line {css}", f"M{'L'.join(places)}" if places else "")

    def dots(self, points: Iterable[Sequence[float]], css: str = "", title: str = "") -> None:
        """Draws points of constant size: lines of no length with round ends."""
        self._path(f"dots {css}", "".join(f"M{self.x(p[0])} {self.y(p[1])}h0" for p in points), title)

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
        places = [(self.x(value) / WIDTH, f"{value:,.10g}") for value in self._x_ticks()]
        return [(f"{place:.2%}", text, place > 0.97) for place, text in places]

    def _x_ticks(self) -> list[float]:
        return ticks(self.right, 6, self.left)

    def _y_ticks(self) -> list[float]:
        return ticks(self.top, 5 if self.size == "tall" else 4, self.low)


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
