"""Sections of the sites: domains around a circle, links coloured by their use, and heat maps of bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.core.units import GB
from replay.log.events import Json
from replay.report.drawing import circle
from replay.report.drawing.formatting import NONE, number, percent, size
from replay.report.drawing.plot import variable
from replay.report.drawing.section import Section, section
from replay.report.run_data import RunData
from twin.core.domain import Pair

MOST_DOMAINS = 16
"""Domains in the picture; of more, those that held a plan or sent bytes, and the rest are counted."""
CLASSES = ((0.02, "under 2 %"), (0.15, "2 to 15 %"), (0.4, "15 to 40 %"), (float("inf"), "40 % and more"))
"""(share of a link's bandwidth over the run, name) of each colour, from the lowest."""


@dataclass(frozen=True, slots=True)
class Link:
    """A direction of a link: its names, curve, colour (None: unused), and figures."""

    name: str
    path: str
    colour: int | None
    sent: str
    mean: str
    use: str


def topology(run: RunData) -> Section | None:
    """The domains, their GPUs and layers, and the links between them; None where no plan was in force."""
    if not run.spans:
        return None
    held = _layers(run)
    shown = _shown(run, held)
    at = dict(zip(shown, circle.places(len(shown)), strict=True))
    links = [_link(run, pair, at) for pair in run.used_links if pair[0] in at and pair[1] in at]
    idle = [
        circle.curve(at[pair[0]], at[pair[1]])
        for pair in sorted(run.observed_bps)
        if pair[0] in at and pair[1] in at and not run.sent_bytes(pair)
    ]
    return section(
        "topology", "Sites and links", sites=[_site(run, k, at[k], held) for k in shown], links=links,
        idle=idle if len(shown) <= MOST_DOMAINS // 2 else [], classes=[name for _, name in CLASSES],
        hidden=len(run.domains) - len(shown), synthetic=run.synthetic, crowd=len(shown),
    )  # fmt: skip


def use(run: RunData, pair: Pair) -> float | None:
    """Share of what a link could have carried over the whole run that was sent; None without telemetry."""
    mean_bps = run.observed_bps[pair].mean if pair in run.observed_bps else None
    if not mean_bps or not run.end_s:
        return None
    return 8 * run.sent_bytes(pair) / (mean_bps * run.end_s)


def _layers(run: RunData) -> dict[int, float]:
    """Mean number of layers that each domain held over the time with a plan."""
    held: dict[int, float] = {}
    total_s = sum(span.end_s - span.start_s for span in run.spans)
    for span in run.spans:
        for share in span.plan["shares"]:
            part = share["layers"] * (span.end_s - span.start_s)
            held[share["domain"]] = held.get(share["domain"], 0.0) + part
    return {domain: layer_s / total_s for domain, layer_s in held.items()} if total_s > 0 else {}


def _shown(run: RunData, held: dict[int, float]) -> list[int]:
    every = range(len(run.domains))
    if len(every) <= MOST_DOMAINS:
        return list(every)
    sent = {k: sum(run.sent_bytes(pair) for pair in run.used_links if k in pair) for k in every}
    ranked = sorted(every, key=lambda k: (-held.get(k, 0.0), -sent[k], k))
    return sorted(k for k in ranked[:MOST_DOMAINS] if held.get(k) or sent[k])


def _site(run: RunData, k: int, place: circle.Place, held: dict[int, float]) -> Json:
    domain = run.header["scenario"]["cluster"]["domains"][k]
    layers = held.get(k, 0.0)
    return {
        "name": run.domains[k], "place": place, "colour": variable(k), "used": layers > 0,
        "facts": f"{domain['gpus']} GPUs · " + (f"{layers:.3g} layers" if layers else "no layers"),
    }  # fmt: skip


def _link(run: RunData, pair: Pair, at: dict[int, circle.Place]) -> Link:
    share = use(run, pair)
    mean_bps = run.observed_bps[pair].mean if pair in run.observed_bps else None
    colour = next(k for k, (most, _) in enumerate(CLASSES) if (share or 0.0) < most)
    return Link(
        f"{run.domains[pair[0]]} → {run.domains[pair[1]]}",
        circle.curve(at[pair[0]], at[pair[1]]),
        colour,
        size(run.sent_bytes(pair)),
        NONE if mean_bps is None else f"{number(mean_bps)}bit/s",
        percent(share),
    )


def traffic(run: RunData) -> Section | None:
    """Bytes between domains: a heat map of training and one of moves."""
    maps = [
        (name, _heat_map(sums, len(run.domains)))
        for name, sums in (("Training", run.training_bytes), ("Moves", run.moved_bytes))
        if any(sums.values())
    ]
    return section("traffic", "Traffic between domains", maps=maps, domains=run.domains) if maps else None


def _heat_map(sums: Mapping[Pair, int], domains: int) -> list[list[tuple[str, float]]]:
    """(GB, shade) of every cell, from row to column; shade 0 without traffic."""
    highest, count = max(sums.values()), range(domains)
    cells = {pair: (f"{sent / GB:,.1f}", 0.08 + 0.36 * sent / highest) for pair, sent in sums.items() if sent}
    return [[cells.get((i, j), ("" if i == j else "0", 0.0)) for j in count] for i in count]
