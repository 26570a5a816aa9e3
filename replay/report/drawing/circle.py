"""Places of domains around an ellipse, and the curves of links between them, for a picture of 1000 x 520."""

import math
from dataclasses import dataclass

WIDTH, HEIGHT = 1000.0, 520.0
RADII = (385.0, 165.0)
GAP = 26.0
"""Room around the mark of a domain, at both ends of a curve."""
BEND = 0.1
"""How far a curve bends, as a share of its length: both directions of a link stay apart."""


@dataclass(frozen=True, slots=True)
class Place:
    """Centre of a domain's mark."""

    x: float
    y: float

    @property
    def style(self) -> str:
        """CSS position of its label: outside the ellipse, within the picture."""
        above, share = self.y <= HEIGHT / 2, self.x / WIDTH
        down = (self.y - 20) / HEIGHT if above else (self.y + 20) / HEIGHT
        vertical = f"bottom:{1 - down:.1%}" if above else f"top:{down:.1%}"
        if share < 0.35:
            return f"{vertical};left:{max(0.0, share - 0.1):.1%};text-align:left"
        if share > 0.65:
            return f"{vertical};right:{max(0.0, 0.9 - share):.1%};text-align:right"
        return f"{vertical};left:{share:.1%};transform:translateX(-50%);text-align:center"


def places(count: int) -> list[Place]:
    """Returns the places of `count` domains, clockwise; from four on none is at the very side or top."""
    turn = -math.pi / 2 if count < 4 else -math.pi / 2 - math.pi / count
    angles = [turn + 2 * math.pi * k / count for k in range(count)]
    x, y = RADII
    return [Place(WIDTH / 2 + x * math.cos(a), HEIGHT / 2 + y * math.sin(a)) for a in angles]


def curve(start: Place, end: Place) -> str:
    """Returns the SVG path from one domain to another, bent to the left of its direction."""
    dx, dy = end.x - start.x, end.y - start.y
    length = math.hypot(dx, dy)
    middle_x = (start.x + end.x) / 2 + BEND * dy
    middle_y = (start.y + end.y) / 2 - BEND * dx
    a, b = GAP / length, 1 - GAP / length
    (x1, y1), (x2, y2) = (_on(start, middle_x, middle_y, end, t) for t in (a, b))
    return f"M{x1:.1f} {y1:.1f}Q{middle_x:.1f} {middle_y:.1f} {x2:.1f} {y2:.1f}"


def _on(start: Place, x: float, y: float, end: Place, t: float) -> tuple[float, float]:
    """Point of a quadratic Bezier curve at `t`."""
    u = 1 - t
    return (
        u * u * start.x + 2 * u * t * x + t * t * end.x,
        u * u * start.y + 2 * u * t * y + t * t * end.y,
    )
