"""Charts as SVG stretched over a box, their labels as HTML on top, so that text keeps its size on a phone."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 1000.0, 300.0
"""Inner coordinates of every plot; the page stretches them."""


@dataclass
class Chart:
    """A plot: x from 0 to `end_s` seconds, or of what `axis` names, y from `low` to `top`."""

    end_s: float
    top: float
    unit: str
    low: float = 0.0
    axis: str = ""
    marks: list[str] = field(default_factory=list)

    def x(self, time_s: float) -> float:
        """Inner coordinate of a time."""
        return round(WIDTH * min(max(time_s / self.end_s, 0.0), 1.0), 2) if self.end_s > 0 else 0.0

    def y(self, value: float) -> float:
        """Inner coordinate of a value."""
        if not self.top > self.low:
            return HEIGHT
        share = (value - self.low) / (self.top - self.low)
        return round(HEIGHT * (1 - min(max(share, 0.0), 1.0)), 2)

    def line(self, points: Iterable[Sequence[float]], css: str, *, step: bool = False) -> None:
        """A line through (time, value, ...) points; with `step` each value holds until the next point."""
        path: list[str] = []
        for time_s, value, *_ in points:
            x, y = self.x(time_s), self.y(value)
            path.append(f"M{x} {y}" if not path else f"H{x}V{y}" if step else f"L{x} {y}")
        if path:
            tail = f"H{WIDTH}" if step else ""
            self.marks.append(f'<path class="line {css}" d="{"".join(path)}{tail}"/>')

    def band(self, points: Sequence[tuple[float, float, float]], css: str) -> None:
        """The area between low and high of (time, low, high) points."""
        if points:
            up = [f"{self.x(t)} {self.y(high)}" for t, _, high in points]
            down = [f"{self.x(t)} {self.y(low)}" for t, low, _ in reversed(points)]
            self.marks.append(f'<path class="area {css}" d="M{"L".join(up + down)}Z"/>')

    def dots(self, points: Iterable[Sequence[float]], css: str) -> None:
        """Points of constant size: a line of no length with round ends."""
        path = "".join(f"M{self.x(point[0])} {self.y(point[1])}h0" for point in points)
        if path:
            self.marks.append(f'<path class="dots {css}" d="{path}"/>')

    def box(self, start_s: float, end_s: float, low: float, high: float, css: str, title: str = "") -> None:
        """A rectangle, with what a pointer over it shows."""
        x, y = self.x(start_s), self.y(high)
        width, height = round(self.x(end_s) - x, 2), round(self.y(low) - y, 2)
        inner = f"<title>{escape(title)}</title>" if title else ""
        rect = f'<rect class="{css}" x="{x}" y="{y}" width="{width}" height="{height}">{inner}</rect>'
        self.marks.append(rect)

    def moments(self, times_s: Iterable[float], css: str, title: str) -> None:
        """Vertical lines; those that nothing could tell apart are one."""
        path = "".join(f"M{x} 0V{HEIGHT:g}" for x in sorted({round(self.x(time_s)) for time_s in times_s}))
        if path:
            self.marks.append(f'<path class="line {css}" d="{path}"><title>{escape(title)}</title></path>')

    def html(self, caption: str, *, small: bool = False, label: str = "") -> str:
        """The chart with axes and caption (HTML); `label` is what a screen reader says."""
        grid, labels = [], []
        for value in ticks(self.top, 3 if small else 4, self.low):
            y = self.y(value)
            grid.append(f'<path class="grid" d="M0 {y}H{WIDTH}"/>')
            labels.append(f'<span class="ty" style="top:{y / HEIGHT:.2%}">{number(value)}</span>')
        scale, unit = (1.0, self.axis) if self.axis else time_unit(self.end_s)
        for value in ticks(self.end_s / scale, 3 if small else 6):
            x = self.x(value * scale)
            edge = " last" if x > 0.97 * WIDTH else ""
            labels.append(f'<span class="tx{edge}" style="left:{x / WIDTH:.2%}">{value:,.10g}</span>')
        svg = (
            f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(label or caption)}">{"".join(grid)}{"".join(self.marks)}</svg>'
        )
        axes = f'<span class="ux">{unit}</span>'
        size = "chart small" if small else "chart"
        plot = f'<div class="plot">{svg}{"".join(labels)}{axes}</div>'
        title = f"<figcaption><i>{escape(self.unit)}</i>{caption}</figcaption>"
        return f'<figure class="{size}">{title}{plot}</figure>'


def ticks(top: float, wanted: int, low: float = 0.0) -> list[float]:
    """0, or what is at least `low`, and about `wanted` round numbers up to `top`."""
    return between(low, top, wanted) if top > low else [low]


def between(low: float, high: float, wanted: int) -> list[float]:
    """About `wanted` round numbers from `low` to `high`."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * n, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def time_unit(seconds: float) -> tuple[float, str]:
    """(seconds in the unit, its name) for an axis of this length."""
    for scale, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * scale:
            return scale, name
    return 1.0, "seconds"


def number(value: float) -> str:
    """Three digits and a metric letter: 1.25 M, 830, 0.04."""
    for factor, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.3g}"


def size(count: float) -> str:
    """A number of bytes: 23.1 TB, 0 B."""
    text = number(count)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def percent(share: float | None, digits: int = 1, sign: str = "") -> str:
    """A share in per cent, kept on one line; a dash for none. `sign` "+": before gains too."""
    return "–" if share is None else f"{100 * share:{sign}z.{digits}f}\u202f%"


def plain(value: float, digits: int = 4, sign: str = "") -> str:
    """A number as people write it: so many digits, all of those before the point, never an exponent."""
    if abs(value) >= 10.0 ** (digits - 1):
        return f"{value:{sign},.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:{sign}z,.{min(decimals, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def named(text: str, names: Sequence[str]) -> str:
    """A text with the names of the domains for their numbers (d0, ...), its plans written as on the page."""
    text = re.sub(r"\bd(\d+)\b", lambda m: names[int(m[1])] if int(m[1]) < len(names) else m[0], text)
    text = re.sub(r":(\d+)L\(tp(\d+),pp(\d+)\)(?: >)?", r" \1 (tp \2, pp \3) →", text)
    text = re.sub(r" → \|", " |", text)
    return re.sub(
        r"(?: →)? dp(\d+) mbs(\d+) m(\d+) (\S+(?: v\d+)?)/(\w+)",
        lambda m: f" · dp {m[1]} · {m[3]} x {m[2]}{_way(m[4], m[5])}",
        text,
    )


def _way(schedule: str, p2p: str) -> str:
    """Schedule and messages, where they are not the usual ones."""
    return "" if (schedule, p2p) == ("1f1b", "blocking") else f" · {schedule}, {p2p}"


def legend(entries: Iterable[tuple[str, int]]) -> str:
    """Names beside their colours (HTML); "" without any."""
    items = "".join(f'<span class="{colour(k)}"><i></i>{escape(name)}</span>' for name, k in entries)
    return f'<div class="legend">{items}</div>' if items else ""


def colour(k: int) -> str:
    """CSS class of the k-th colour; they repeat after eight."""
    return f"k{k % 8}"
