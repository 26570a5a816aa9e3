"""A first scenario file from what the lake holds: sites with links between all of them, GPU models seen.

What the lake does not say (model, GPUs, prices, network inside a site) takes usual values, and the comment of
the line says where they come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError, UsageError
from ingest.lake import duckdb_views
from twin.core import gpu_models, model_presets
from twin.traces import link_samples

SCHEMA_NAME = "scenario.schema.json"
"""File beside a scenario that its first line refers to."""
GPU, MODEL, SITES = "A100-80", "llama2-7b", 4
ASSUMED_RTT_S = 0.1
DECISIONS = 100
"""About so many decisions in the test window, 30 % of a series."""
SHORTEST_S, LONGEST_S = 60, 900
"""Of the time between two decisions."""

_LINKS = f"""
    SELECT dataset, src, dst, count(*) AS samples, count(rtt_s) AS round_trips,
           epoch_ns(max(ts)) - epoch_ns(min(ts)) AS span_ns
    FROM link_samples WHERE bandwidth_bps > 0 AND src <> dst AND {link_samples.OBTAINED}
    GROUP BY ALL ORDER BY ALL
"""
_MODELS = """
    SELECT DISTINCT gpu_model
    FROM (SELECT gpu_model FROM gpu_samples UNION SELECT gpu_model FROM layer_profiles)
    WHERE gpu_model IS NOT NULL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class MeasuredLinks:
    """Links of one data set: samples of each ordered pair of sites, pairs with round trips, and its span."""

    dataset: str
    samples: dict[tuple[str, str], int]
    round_trips: frozenset[tuple[str, str]]
    span_s: float

    def complete(self, sites: Sequence[str]) -> bool:
        """True if every ordered pair of these sites was measured."""
        return all((a, b) in self.samples for a in sites for b in sites if a != b)

    def sites(self, most: int = SITES) -> tuple[str, ...]:
        """Returns up to so many sites with links between all of them, those with most samples first."""
        weight: dict[str, int] = {}
        for pair, samples in self.samples.items():
            for site in pair:
                weight[site] = weight.get(site, 0) + samples
        chosen: list[str] = []
        for site in sorted(weight, key=lambda name: (-weight[name], name)):
            if len(chosen) < most and self.complete([*chosen, site]):
                chosen.append(site)
        return tuple(chosen)


@dataclass(frozen=True, slots=True)
class Seen:
    """Offer of a lake for a scenario: data sets whose links vary in time, and known GPU models."""

    links: dict[str, MeasuredLinks]
    gpus: tuple[str, ...]

    def choose(self, dataset: str | None) -> MeasuredLinks:
        """Returns the links of a data set, by default of the one with most sites, then with most samples.

        Raises:
            NotFoundError: the lake has no such links.
        """
        usable = {name: links for name, links in self.links.items() if len(links.sites()) > 1}
        if dataset is not None and dataset not in usable:
            known = suggestion(dataset, usable) if usable else "; none has: see `twin traces`"
            raise NotFoundError(f"{dataset}: no two sites with measured links in both directions{known}")
        if not usable:
            raise NotFoundError(
                "the lake has no two sites with measured links in both directions; `twin ingest shipped` "
                "reads synthetic ones, `twin ingest FOLDER` your own"
            )
        best = max(
            usable.values(), key=lambda one: (len(one.sites()), sum(one.samples.values()), one.dataset)
        )
        return best if dataset is None else usable[dataset]


@dataclass(frozen=True, slots=True)
class DraftChoices:
    """Wishes for a scenario; None or empty: chosen from the lake, or a usual value."""

    name: str
    dataset: str | None = None
    sites: tuple[str, ...] = ()
    model: str = MODEL
    gpu: str | None = None
    gpus: int | None = None


def seen(store: Path) -> Seen:
    """Returns what the lake of a store offers."""
    with duckdb_views.connect(store) as connection:
        rows = connection.execute(_LINKS).fetchall()
        models = [name for (name,) in connection.execute(_MODELS).fetchall()]
    found: dict[str, MeasuredLinks] = {}
    for dataset in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == dataset]
        span_s = max(row[5] for row in own) / 1e9
        if span_s > 0:  # one instant does not vary
            found[dataset] = MeasuredLinks(
                dataset, {(row[1], row[2]): row[3] for row in own},
                frozenset((row[1], row[2]) for row in own if row[4]), span_s,
            )  # fmt: skip
    return Seen(found, _known(models))


def draft(offered: Seen, choices: DraftChoices) -> str:
    """Returns the text of a scenario file, with comments.

    Raises:
        NotFoundError: the lake has no links for it. UsageError: an unknown model, GPU or site, or sites
            without links between all of them.
    """
    links = offered.choose(choices.dataset)
    sites = choices.sites or links.sites()
    _check(links, sites)
    gpu = gpu_models.canonical(choices.gpu or (offered.gpus[0] if offered.gpus else GPU))
    fabric = gpu_models.fabric(gpu)
    count = choices.gpus or fabric.gpus_per_node
    seen_gpus = "seen in the lake: " + ", ".join(offered.gpus) if offered.gpus else "none seen in the lake"
    bare = [pair for pair in links.samples if set(pair) <= set(sites) and pair not in links.round_trips]
    return _TEXT.format(
        schema=SCHEMA_NAME, name=_plain(choices.name),
        about=_quoted(f"{choices.model} over {len(sites)} sites of {links.dataset}"),
        model=model_presets.preset(choices.model).name,
        models=", ".join(sorted(model_presets.PRESETS)), gpu=gpu, seen=seen_gpus,
        per_node=min(count, fabric.gpus_per_node), intra=f"{fabric.intra_node_bps:.3e}",
        inter=f"{fabric.inter_node_bps:.3e}", intra_s=fabric.intra_node_latency_s,
        inter_s=fabric.inter_node_latency_s,
        domains="\n".join(f"    - {{name: {_quoted(site)}, gpus: {count}}}" for site in sites),
        dataset=_plain(links.dataset), rtt=_RTT if bare else "", period=_period_s(links.span_s),
    )  # fmt: skip


def _check(links: MeasuredLinks, sites: Sequence[str]) -> None:
    known = sorted({site for pair in links.samples for site in pair})
    for site in sites:
        if site not in known:
            raise UsageError(f"{links.dataset} has no site {site!r}{suggestion(site, known)}")
    if len(set(sites)) < max(2, len(sites)):
        raise UsageError("name two or more different sites")
    if not links.complete(sites):
        lacking = next(f"{a} > {b}" for a in sites for b in sites if a != b and (a, b) not in links.samples)
        raise UsageError(
            f"{links.dataset} has no samples of {lacking}; together fit: {', '.join(links.sites())}"
        )


def _known(models: Sequence[str]) -> tuple[str, ...]:
    """Names of the GPU models that the twin knows."""
    found: dict[str, None] = {}
    for model in models:
        try:
            found[gpu_models.canonical(model)] = None
        except UsageError:  # of a maker that the twin does not know: `cluster.gpu_models` can define it
            continue
    return tuple(found)


def _period_s(span_s: float) -> int:
    return int(min(LONGEST_S, max(SHORTEST_S, round(0.3 * span_s / DECISIONS, -1))))


def _plain(text: str) -> str:
    """A name as a YAML value: `null` and `2024` are quoted, as they would be no text."""
    try:
        return text if yaml.safe_load(text) == text else _quoted(text)
    except yaml.YAMLError:
        return _quoted(text)


def _quoted(text: str) -> str:
    """A text as a YAML value on one line."""
    return str(yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=True)).strip()


_RTT = f"""
  default_rtt_s: {ASSUMED_RTT_S}              # assumed: some of these links have no measured round trip"""
_TEXT = """# yaml-language-server: $schema={schema}
# A scenario: cluster x model x links. Every key: docs/reference/scenarios.md; with every default written out:
# twin config --scenario THIS-FILE
name: {name}
about: {about}
model: {model}    # known: {models}

job:
  global_batch: 64                # sequences an iteration
  micro_batches: [1, 2, 4]        # sizes that plans may choose from
  schedule: 1f1b                  # or gpipe, interleaved, crosspipe, zb-h1, ...
  recompute: full                 # of activations: none, selective or full
  zero: 1                         # optimiser states are spread over data-parallel ranks

cluster:
  hardware:                       # of every site that says nothing else
    gpu: {gpu}    # {seen}
    gpus_per_node: {per_node}
    # Usual node and network of this GPU: NVLink or PCIe, and the adapters of the maker's own systems.
    intra_node_bps: {intra}       # per GPU and direction
    inter_node_bps: {inter}       # per GPU and direction
    intra_node_latency_s: {intra_s:.1e}
    inter_node_latency_s: {inter_s:.1e}
    usd_per_gpu_hour: 4.0         # assumed: put in what yours costs
  domains:                        # named as the sites of the data set
{domains}
  usd_per_gb: {{default: 0.05}}     # assumed egress price, USD per 1e9 bytes

wan:
  dataset: {dataset}
  streams: 32                     # connections of a transfer: samples of one are multiplied
  sample_streams: 1               # of a sample that does not say how many it used
  cap_bps: 1.0e+10                # no link carries more{rtt}

control:
  period_s: {period}                   # seconds between decisions; a change of the links may come before

seed: 0
"""
