"""Draws `docs/front.svg`, the picture of the README, from logged runs.

    twin --store STORE ingest traces/ ../shared/traces/wan/wanify-aws8
    twin --store STORE bench --scenario tri-7b --dataset wanify-aws8
    python docs/draw_front.py STORE --bound 49.14

`--bound`: microseconds a token of the clairvoyant bound, as `twin bench` prints them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from replay.sql.query import query

TARGET = Path(__file__).with_name("front.svg")
POLICIES = ("static", "single", "greedy", "mpc", "hippo")
WIDTH, HEIGHT, LEFT, RIGHT = 940, 510, 50, 212
LINKS, TOKENS = (64, 150), (262, 210)
"""Top and height of the two charts."""
TICK_S = 20.0

STYLE = """
text { font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; font-size: 12px; }
text { fill: #1d2430; }
.paper { fill: #ffffff; } .title { font-size: 14px; font-weight: 600; }
.axis { fill: #566173; font-size: 11px; }
.grid { stroke: #dde3ea; } .link { fill: none; stroke-width: 1.3; } .run { fill: none; stroke-width: 2.2; }
.bound { stroke: #1d2430; stroke-dasharray: 5 4; }
.l0, .l1 { stroke: #2f6fb0; } .l2, .l3 { stroke: #3d9a6d; } .l4, .l5 { stroke: #b06f2f; }
.l1, .l3, .l5 { stroke-opacity: .5; }
text.n0 { fill: #2f6fb0; } text.n2 { fill: #2e8058; } text.n4 { fill: #9a5d22; }
.static { stroke: #7b8aa0; } .single { stroke: #b0892f; } .greedy { stroke: #c0504a; }
.mpc { stroke: #3d9a6d; } .hippo { stroke: #2f6fb0; } .strong { font-weight: 600; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ee; } .paper { fill: #14181e; } .axis { fill: #a3aebd; } .grid { stroke: #2c3440; }
  .bound { stroke: #e4e8ee; } .l0, .l1, .hippo { stroke: #6aa9e6; } .l2, .l3, .mpc { stroke: #5fc294; }
  .l4, .l5 { stroke: #d99a5b; } .static { stroke: #93a1b5; } .single { stroke: #d8b45a; }
  .greedy { stroke: #e57a73; }
  text.n0 { fill: #6aa9e6; } text.n2 { fill: #5fc294; } text.n4 { fill: #d99a5b; }
}
"""

PAGE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"
  height="{height}" role="img" aria-label="Bandwidth of six links and tokens that five policies train">
<style>{style}</style>
{body}
</svg>
"""

Points = Sequence[tuple[float, float]]


def newest(store: Path) -> dict[str, tuple[str, float, float]]:
    """Returns run, horizon in seconds and tokens of each policy's newest finished run of tri-7b."""
    rows = query(
        store,
        "select policy, run, horizon_s, tokens from runs where finished and branch_of is null "
        "and scenario = 'tri-7b' order by run",
    ).to_pylist()
    return {row["policy"]: (row["run"], row["horizon_s"], row["tokens"]) for row in rows}


def link_series(store: Path, run: str) -> dict[str, Points]:
    """Returns seconds and Gb/s of each link as telemetry measured it, every `TICK_S`."""
    rows = query(
        store,
        f"select src || ' > ' || dst as link, floor(time_s / {TICK_S}) * {TICK_S} as second, "
        f"first(bandwidth_bps order by time_s) / 1e9 as rate from links where run = '{run}' "
        "and kind = 'observed' group by all order by link, second",
    ).to_pylist()
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(row["link"], []).append((row["second"], row["rate"]))
    return dict(found)


def token_series(store: Path, run: str) -> Points:
    """Returns seconds and millions of tokens trained so far."""
    rows = query(
        store, f"select end_s, tokens from iterations where run = '{run}' order by end_s"
    ).to_pylist()
    total, points = 0.0, [(0.0, 0.0)]
    for row in rows:
        total += row["tokens"] / 1e6
        points.append((row["end_s"], total))
    return points


class Chart:
    """A chart of values over time at a place of the picture."""

    def __init__(self, place: tuple[int, int], seconds: float, most: float):
        self.top, self.height = place
        self._x = (WIDTH - LEFT - RIGHT) / seconds
        self._y = self.height / most

    def at(self, seconds: float, value: float) -> tuple[float, float]:
        """Returns the pixel of a point."""
        return LEFT + seconds * self._x, self.top + self.height - value * self._y

    def line(self, points: Points, css: str, *, steps: bool = False) -> str:
        """Returns a line, as steps where each value holds until the next."""
        path = ""
        for seconds, value in points:
            x, y = self.at(seconds, value)
            path += (f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f},{y:.1f}") if path else f"M{x:.1f},{y:.1f}"
        return f'<path class="{css}" d="{path}"/>'

    def grid(self, values: Sequence[float], unit: str) -> list[str]:
        """Returns horizontal lines with their values."""
        lines = []
        for value in values:
            _, y = self.at(0, value)
            lines += [
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
                f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}{unit}</text>',
            ]
        return lines


def labels(chart: Chart, ends: list[tuple[float, str, str]], apart: float = 15) -> list[str]:
    """Returns texts beside the ends of lines, moved apart where they would overlap."""
    lines, last = [], float("inf")
    for value, text, css in sorted(ends):
        y = min(chart.at(0, value)[1] + 4, last - apart)
        lines.append(f'<text class="{css}" x="{WIDTH - RIGHT + 10}" y="{y:.1f}">{text}</text>')
        last = y
    return lines


def draw(store: Path, bound_us: float) -> str:
    """Returns the picture."""
    runs = newest(store)
    seconds = runs["hippo"][1]
    links = link_series(store, runs["hippo"][0])
    tokens = {policy: token_series(store, runs[policy][0]) for policy in POLICIES}
    bound = seconds / bound_us
    rates = Chart(LINKS, seconds, 1.05 * max(rate for points in links.values() for _, rate in points))
    trained = Chart(TOKENS, seconds, 1.06 * bound)
    body = [
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
        _title(30, "Links of wanify-aws8 between three AWS regions as telemetry shows them, Gb/s"),
        *rates.grid((0, 2, 4, 6, 8, 10), ""),
        *(rates.line(points, f"link l{i}", steps=True) for i, points in enumerate(_paired(links).values())),
        _title(TOKENS[0] - 14, "Tokens that each policy trains over them, millions"),
        *trained.grid((0, 20, 40, 60), ""),
        trained.line([(0, bound), (seconds, bound)], "bound"),
        *(trained.line(tokens[policy], f"run {policy}") for policy in POLICIES),
    ]
    names = list(_paired(links))[::2]
    body += [
        f'<text class="n{2 * i}" x="{WIDTH - RIGHT + 10}" y="{LINKS[0] + 112 - 34 * i}">'
        f"{name.replace(' > ', ' and ')}</text>"
        for i, name in enumerate(names)
    ]
    ends = [
        (
            tokens[policy][-1][1],
            f"{policy}, {1e6 * runs[policy][1] / runs[policy][2]:.1f} us/token",
            "strong" if policy == "hippo" else "",
        )
        for policy in POLICIES
    ]
    body += labels(trained, [*ends, (bound, f"bound, {bound_us:.1f} us/token", "axis")])
    for minute in range(0, int(seconds // 60) + 1, 10):
        x, y = trained.at(60 * minute, 0)
        body.append(
            f'<text class="axis" x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{minute} min</text>'
        )
    return PAGE.format(width=WIDTH, height=HEIGHT, style=STYLE, body="\n".join(body))


def _title(y: float, text: str) -> str:
    return f'<text class="title" x="{LEFT}" y="{y}">{text}</text>'


def _paired(links: dict[str, Points]) -> dict[str, Points]:
    """Returns the links with both directions of a pair next to each other."""
    order = sorted(links, key=lambda name: (sorted(name.split(" > ")), name))
    return {name: links[name] for name in order}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--bound", type=float, required=True)
    given = parser.parse_args()
    TARGET.write_text(draw(given.store, given.bound), encoding="utf-8")
