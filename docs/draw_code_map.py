"""Draws `docs/code-map.svg` from the imports of the code: `python docs/draw_code_map.py`."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import grimp

FLOORS = {
    "commands": "words become calls, results become text",
    "replay": "decisions become a log, figures, reports and trained weights",
    "policy": "what is seen becomes a decision",
    "twin": "measurements become a simulated world and a cost model",
    "ingest": "files become measurements in the lake",
}
"""The packages from the top down, and what each one does."""

HALLS = ("policy.hippo", "ingest.readers")
"""Folders whose subfolders are rooms of their own."""

TARGET = Path(__file__).with_name("code-map.svg")
LEFT, WIDTH, BOX, ROW, HEAD, GAP = 24, 1240, 130, 42, 42, 32

STYLE = """
text { font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1d2430; }
.paper { fill: #ffffff; } .band { fill: #f1f4f8; } .box { fill: #ffffff; stroke: #9aa7b8; }
.floor { font-size: 17px; font-weight: 600; } .about { font-size: 13px; fill: #566173; }
.room { font-size: 12px; font-weight: 600; } .count { font-size: 11px; fill: #566173; }
.edge { fill: none; stroke: #7b8aa0; stroke-opacity: .55; } .down { stroke: #2f6fb0; stroke-width: 2; }
.tip { fill: #7b8aa0; } .down-tip { fill: #2f6fb0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ee; } .about, .count { fill: #a3aebd; }
  .paper { fill: #14181e; } .band { fill: #1d232c; } .box { fill: #2a323d; stroke: #5b6878; }
  .edge { stroke: #8b99ab; } .tip { fill: #8b99ab; } .down { stroke: #6aa9e6; } .down-tip { fill: #6aa9e6; }
}
"""

PAGE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
  width="{width}" height="{height}" role="img" aria-label="Floors and rooms of the code and their imports">
<style>{style}</style>
<defs>
<marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">
<path class="tip" d="M0,0 L6,3 L0,6 z"/></marker>
<marker id="down" viewBox="0 0 6 6" refX="3" refY="3" markerWidth="4" markerHeight="4" orient="auto">
<path class="down-tip" d="M0,0 L6,3 L0,6 z"/></marker>
</defs>
<rect class="paper" width="{width}" height="{height}" rx="12"/>
<text class="floor" x="{left}" y="30">{title}</text>
<text class="about" x="{left}" y="50">An arrow leads from a room to one that it imports; imports that follow
from others are left out. A floor imports those below it, never one above.</text>
{body}
</svg>
"""


@dataclass
class Floor:
    """A package: its rooms with their number of modules, and which room imports which."""

    name: str
    rooms: Counter[str] = field(default_factory=Counter)
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    below: Counter[str] = field(default_factory=Counter)

    def depth(self, room: str) -> int:
        """Returns the length of the longest chain of imports from `room` inside the floor."""
        return max((1 + self.depth(other) for other in self.imports[room]), default=0)

    def needed(self, room: str) -> set[str]:
        """Returns the imported rooms that no other imported room imports as well."""
        return {
            other
            for other in self.imports[room]
            if not any(other in self._reached(via) for via in self.imports[room] - {other})
        }

    def _reached(self, room: str) -> set[str]:
        direct = self.imports[room]
        return direct.union(*(self._reached(other) for other in direct))


def room_of(module: str) -> str:
    """Returns the folder of a module, as `floor.room`; modules of a hall are a room themselves."""
    parts = module.split(".")
    deep = ".".join(parts[:2]) in HALLS and len(parts) > 3
    return ".".join(parts[: 3 if deep else 2 if len(parts) > 2 else 1])


def read() -> list[Floor]:
    """Returns the floors with the imports that are in the code now."""
    graph = grimp.build_graph(*FLOORS, cache_dir=None)
    packages = {module for module in graph.modules if graph.find_children(module)}
    floors = {name: Floor(name) for name in FLOORS}
    for module in sorted(graph.modules - packages):
        floor, room = floors[module.split(".")[0]], room_of(module)
        floor.rooms[room] += 1
        for other in graph.find_modules_directly_imported_by(module) - packages:
            if not other.startswith(f"{floor.name}."):
                floor.below[other.split(".")[0]] += 1
            elif room_of(other) != room:
                floor.imports[room].add(room_of(other))
    return list(floors.values())


def columns(floor: Floor) -> list[list[str]]:
    """Returns the rooms by depth, the deepest first; neighbours in a column import much the same."""
    deepest = max(map(floor.depth, floor.rooms))
    found = [
        sorted(room for room in floor.rooms if floor.depth(room) == deepest - d) for d in range(deepest + 1)
    ]
    place = {room: i for column in found for i, room in enumerate(column)}
    for _ in range(8):
        for column in found:
            near = {room: [place[other] for other in _neighbours(floor, room)] for room in column}
            column.sort(key=lambda room: (sum(near[room]) / max(1, len(near[room])), room))
            place.update({room: i for i, room in enumerate(column)})
    return found


def _neighbours(floor: Floor, room: str) -> list[str]:
    return sorted(floor.needed(room) | {other for other in floor.rooms if room in floor.needed(other)})


def band(floor: Floor, top: float, widest: int) -> tuple[list[str], float]:
    """Returns the SVG of a floor and where it ends."""
    found = columns(floor)
    tallest = max(map(len, found))
    height = HEAD + tallest * ROW + 8
    step = (WIDTH - 2 * LEFT - BOX - 24) / max(1, widest - 1)
    at = {
        room: (
            LEFT + 12 + i * step,
            top + HEAD + (tallest - len(column)) * ROW / 2 + j * ROW,
        )
        for i, column in enumerate(found)
        for j, room in enumerate(column)
    }
    lines = [
        f'<rect class="band" x="{LEFT}" y="{top:g}" width="{WIDTH - 2 * LEFT}" height="{height:g}" rx="10"/>',
        f'<text class="floor" x="{LEFT + 14}" y="{top + 27:g}">{floor.name} '
        f'<tspan class="count">{sum(floor.rooms.values())} modules</tspan>'
        f'<tspan class="about" dx="12">{escape(FLOORS[floor.name])}</tspan></text>',
    ]
    for room in sorted(floor.rooms):
        lines += [_edge(at[room], at[other]) for other in sorted(floor.needed(room))]
    for room, (x, y) in at.items():
        name = room.removeprefix(f"{floor.name}.").replace(".", "/")
        lines += [
            f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{BOX}" height="34" rx="6"/>',
            f'<text class="room" x="{x + 8:.1f}" y="{y + 15:.1f}">{name}</text>',
            f'<text class="count" x="{x + 8:.1f}" y="{y + 28:.1f}">{floor.rooms[room]} modules</text>',
        ]
    return lines, top + height


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y, u, v = start[0] + BOX, start[1] + 17, end[0] - 4, end[1] + 17
    bend = max(16.0, (u - x) / 2)
    curve = f"M{x:.1f},{y:.1f} C{x + bend:.1f},{y:.1f} {u - bend:.1f},{v:.1f} {u:.1f},{v:.1f}"
    return f'<path class="edge" d="{curve}" marker-end="url(#tip)"/>'


def draw(floors: list[Floor]) -> str:
    """Returns the picture: a band a floor, arrows from each room to those that it imports."""
    widest = max(len(columns(floor)) for floor in floors)
    body: list[str] = []
    top = 62.0
    for floor in floors:
        lines, end = band(floor, top, widest)
        body += lines
        if floor.below:
            total = ", ".join(
                f"{n} of {name}"
                for name, n in sorted(floor.below.items(), key=lambda pair: list(FLOORS).index(pair[0]))
            )
            x = LEFT + 60
            body += [
                f'<path class="down" d="M{x},{end:g} V{end + GAP - 7:g}" marker-end="url(#down)"/>',
                f'<text class="about" x="{x + 14}" y="{end + GAP / 2 + 5:g}">imports {total}</text>',
            ]
        top = end + GAP
    rooms, modules = (sum(of(f.rooms) for f in floors) for of in (len, Counter.total))
    title = f"{len(floors)} floors, {rooms} rooms, {modules} modules"
    return PAGE.format(
        width=WIDTH, height=f"{top:g}", left=LEFT, style=STYLE, title=title, body="\n".join(body)
    )


if __name__ == "__main__":
    TARGET.write_text(draw(read()), encoding="utf-8")
