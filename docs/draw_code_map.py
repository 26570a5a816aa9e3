"""Draws `docs/code-map.svg` from the imports of the code: `python docs/draw_code_map.py`."""

from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import grimp

LAYERS = {
    "commands": "words become calls, results become text",
    "replay": "decisions become a log, figures, reports and trained weights",
    "policy": "what is seen becomes a decision",
    "twin": "measurements become a simulated world and a cost model",
    "ingest": "files become measurements in the lake",
}
"""The packages from the top down, and what each one does."""

SPLIT = ("policy.hippo", "ingest.readers")
"""Folders whose subfolders are packages of their own."""

TARGET = Path(__file__).with_name("code-map.svg")
LEFT, WIDTH, BOX, ROW, HEAD, GAP = 24, 1240, 130, 42, 42, 32

STYLE = """
text { font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1d2430; }
.paper { fill: #ffffff; } .band { fill: #f1f4f8; } .box { fill: #ffffff; stroke: #9aa7b8; }
.layer { font-size: 17px; font-weight: 600; } .about { font-size: 13px; fill: #566173; }
.package { font-size: 12px; font-weight: 600; } .count { font-size: 11px; fill: #566173; }
.edge { fill: none; stroke: #7b8aa0; stroke-opacity: .55; } .down { stroke: #2f6fb0; stroke-width: 2; }
.tip { fill: #7b8aa0; } .down-tip { fill: #2f6fb0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ee; } .about, .count { fill: #a3aebd; }
  .paper { fill: #14181e; } .band { fill: #1d232c; } .box { fill: #2a323d; stroke: #5b6878; }
  .edge { stroke: #8b99ab; } .tip { fill: #8b99ab; } .down { stroke: #6aa9e6; } .down-tip { fill: #6aa9e6; }
}
"""

PAGE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
  width="{width}" height="{height}" role="img" aria-label="Packages of the code and their imports">
<style>{style}</style>
<defs>
<marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">
<path class="tip" d="M0,0 L6,3 L0,6 z"/></marker>
<marker id="down" viewBox="0 0 6 6" refX="3" refY="3" markerWidth="4" markerHeight="4" orient="auto">
<path class="down-tip" d="M0,0 L6,3 L0,6 z"/></marker>
</defs>
<rect class="paper" width="{width}" height="{height}" rx="12"/>
<text class="layer" x="{left}" y="30">{title}</text>
<text class="about" x="{left}" y="50">An arrow leads from a package to one that it imports; imports that
follow from others are left out. A layer imports those below it, never one above.</text>
{body}
</svg>
"""


@dataclass
class Layer:
    """A top-level package: the packages in it, which of them import which, and the layers that it imports."""

    name: str
    packages: set[str] = field(default_factory=set)
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    below: set[str] = field(default_factory=set)

    def depth(self, package: str) -> int:
        """Returns the length of the longest chain of imports from `package` inside the layer."""
        return max((1 + self.depth(other) for other in self.imports[package]), default=0)

    def needed(self, package: str) -> set[str]:
        """Returns the imported packages that no other imported package imports as well."""
        return {
            other
            for other in self.imports[package]
            if not any(other in self._reached(via) for via in self.imports[package] - {other})
        }

    def _reached(self, package: str) -> set[str]:
        direct = self.imports[package]
        return direct.union(*(self._reached(other) for other in direct))


def package_of(module: str) -> str:
    """Returns the folder of a module, as `layer.package`;
    modules of a folder in `SPLIT` are a package themselves."""
    parts = module.split(".")
    deep = ".".join(parts[:2]) in SPLIT and len(parts) > 3
    return ".".join(parts[: 3 if deep else 2 if len(parts) > 2 else 1])


def read() -> list[Layer]:
    """Returns the layers with the imports that are in the code now."""
    graph = grimp.build_graph(*LAYERS, cache_dir=None)
    packages = {module for module in graph.modules if graph.find_children(module)}
    layers = {name: Layer(name) for name in LAYERS}
    for module in sorted(graph.modules - packages):
        layer, package = layers[module.split(".")[0]], package_of(module)
        layer.packages.add(package)
        for other in graph.find_modules_directly_imported_by(module) - packages:
            if not other.startswith(f"{layer.name}."):
                layer.below.add(other.split(".")[0])
            elif package_of(other) != package:
                layer.imports[package].add(package_of(other))
    return list(layers.values())


def columns(layer: Layer) -> list[list[str]]:
    """Returns the packages by depth, the deepest first; neighbours in a column import much the same."""
    deepest = max(map(layer.depth, layer.packages))
    found = [
        sorted(package for package in layer.packages if layer.depth(package) == deepest - d)
        for d in range(deepest + 1)
    ]
    place = {package: i for column in found for i, package in enumerate(column)}
    for _ in range(8):
        for column in found:
            near = {package: [place[other] for other in _neighbours(layer, package)] for package in column}
            column.sort(key=lambda package: (sum(near[package]) / max(1, len(near[package])), package))
            place.update({package: i for i, package in enumerate(column)})
    return found


def _neighbours(layer: Layer, package: str) -> list[str]:
    return sorted(
        layer.needed(package) | {other for other in layer.packages if package in layer.needed(other)}
    )


def band(layer: Layer, top: float, widest: int) -> tuple[list[str], float]:
    """Returns the SVG of a layer and where it ends."""
    found = columns(layer)
    tallest = max(map(len, found))
    height = HEAD + tallest * ROW + 8
    step = (WIDTH - 2 * LEFT - BOX - 24) / max(1, widest - 1)
    at = {
        package: (
            LEFT + 12 + i * step,
            top + HEAD + (tallest - len(column)) * ROW / 2 + j * ROW,
        )
        for i, column in enumerate(found)
        for j, package in enumerate(column)
    }
    lines = [
        f'<rect class="band" x="{LEFT}" y="{top:g}" width="{WIDTH - 2 * LEFT}" height="{height:g}" rx="10"/>',
        f'<text class="layer" x="{LEFT + 14}" y="{top + 27:g}">{layer.name} '
        f'<tspan class="about" dx="12">{escape(LAYERS[layer.name])}</tspan></text>',
    ]
    for package in sorted(layer.packages):
        lines += [_edge(at[package], at[other]) for other in sorted(layer.needed(package))]
    for package, (x, y) in at.items():
        name = package.removeprefix(f"{layer.name}.").replace(".", "/")
        lines += [
            f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{BOX}" height="34" rx="6"/>',
            f'<text class="package" x="{x + 8:.1f}" y="{y + 21:.1f}">{name}</text>',
        ]
    return lines, top + height


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y, u, v = start[0] + BOX, start[1] + 17, end[0] - 4, end[1] + 17
    bend = max(16.0, (u - x) / 2)
    curve = f"M{x:.1f},{y:.1f} C{x + bend:.1f},{y:.1f} {u - bend:.1f},{v:.1f} {u:.1f},{v:.1f}"
    return f'<path class="edge" d="{curve}" marker-end="url(#tip)"/>'


def draw(layers: list[Layer]) -> str:
    """Returns the picture: a band a layer, arrows from each package to those that it imports."""
    widest = max(len(columns(layer)) for layer in layers)
    body: list[str] = []
    top = 62.0
    for layer in layers:
        lines, end = band(layer, top, widest)
        body += lines
        if layer.below:
            names = ", ".join(sorted(layer.below, key=list(LAYERS).index))
            x = LEFT + 60
            body += [
                f'<path class="down" d="M{x},{end:g} V{end + GAP - 7:g}" marker-end="url(#down)"/>',
                f'<text class="about" x="{x + 14}" y="{end + GAP / 2 + 5:g}">imports {names}</text>',
            ]
        top = end + GAP
    title = "Packages, from the command line down to the measurements"
    return PAGE.format(
        width=WIDTH, height=f"{top:g}", left=LEFT, style=STYLE, title=title, body="\n".join(body)
    )


if __name__ == "__main__":
    TARGET.write_text(draw(read()), encoding="utf-8")
