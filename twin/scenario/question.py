"""Builds a scenario from a model, sites and a data set of links, with stated assumptions for all else.

The assumptions are those of the scenarios that ship: a batch of 786,432 tokens, 1F1B with full recomputation
and ZeRO 1, the usual node and network of each GPU model, egress at the price of a large cloud.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

from ingest.core import config
from ingest.core.errors import UsageError
from ingest.core.terminal import shown
from twin.core import gpu_models, model_presets
from twin.core.transformer import Transformer
from twin.settings.scenario_file import Scenario
from twin.traces.site_nodes import SiteNodes, nodes_of

TOKENS = 786_432
"""Tokens of a batch: 192 sequences of 4096, as in quad-70b."""
STREAMS, CAP_BPS = 64, 10e9
"""TCP connections of a gateway, and what two gateways carry (Jain et al. 2023, Skyplane)."""
WHOLE_RUN_S = 5.0
"""Seconds of a measurement that is taken where a set has such: shorter ones see the slow start of TCP."""
RTT_S = 0.1
"""Round trip where a data set has none: some 10,000 km of fibre there and back."""
EGRESS_USD_PER_GB = 0.08
"""Google Cloud, premium tier, volumes above 10 TB, worldwide, 2024."""
_SITE = re.compile(r"(?P<name>.+?)\s*:\s*(?P<gpus>\d{1,7})\s*[x×*]\s*(?P<gpu>[^:]+)")
_FORM = 'write --sites "paris: 16 x A100-80, berlin: 32 x H100"'


@dataclass(frozen=True, slots=True)
class Site:
    """GPUs of one site; `gpu` is the canonical name of their model."""

    name: str
    gpus: int
    gpu: str


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario, and what was assumed where words for it left it open."""

    scenario: Scenario
    assumed: tuple[str, ...] = ()


def question(
    store: Path, model: str | None, sites: str | None, links: str | None, batch: int | None = None
) -> Question:
    """Returns the scenario of a model on sites (`paris: 16 x A100-80, berlin: 32 x H100`) whose links are a
    data set of the lake; `batch` is the number of sequences of an iteration.

    Raises:
        UsageError: one of the three is missing, the model or a GPU is not known, the sites cannot be read, or
        the data set has too few nodes for them. NotFoundError: the lake lacks the data set.
    """
    if model is None or sites is None or links is None:
        given = {"--model": model, "--sites": sites, "--links": links}
        lacking = ", ".join(name for name, value in given.items() if value is None)
        raise UsageError(
            f"{lacking} missing: without a scenario, --model, --sites and --links are asked together; "
            f"{_FORM} and --links with a data set of `twin traces`"
        )
    trained, listed = model_presets.preset(model), parse_sites(sites)
    mapped = nodes_of(store, links, [site.name for site in listed])
    sequences = batch or TOKENS // trained.seq
    document = _document(trained, listed, links, mapped, sequences)
    scenario = config.parse(Scenario, document, source=f"--sites {shown(sites)}")
    return Question(scenario, tuple(_assumed(trained, listed, mapped, sequences, batch)))


def parse_sites(text: str) -> list[Site]:
    """Parses sites, separated by commas: `paris: 16 x A100-80, berlin: 32 x H100`.

    Raises:
        UsageError: one is not of that form, is named twice or has an unknown GPU; or fewer than two.
    """
    found = [_site(part.strip()) for part in re.split("[,;]", text) if part.strip()]
    names = [site.name for site in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--sites: {shown(name)} is named twice; {_FORM}")
    if len(found) < 2:
        raise UsageError(f"--sites {shown(text)}: links join two or more sites; {_FORM}")
    return found


def _site(part: str) -> Site:
    match = _SITE.fullmatch(part)
    if match is None:
        raise UsageError(f"--sites: {shown(part)} is no `name: number x GPU`; {_FORM}")
    if int(match["gpus"]) < 1:
        raise UsageError(f"--sites: {shown(match['name'])} has no GPUs; leave it out, or give it some")
    try:
        return Site(match["name"], int(match["gpus"]), gpu_models.canonical(match["gpu"]))
    except UsageError as error:
        raise UsageError(f"--sites: {match['name']}: {error}") from error


def _document(
    model: Transformer, sites: Sequence[Site], links: str, mapped: SiteNodes, sequences: int
) -> dict[str, Any]:
    """Returns the scenario as its file would have it."""
    domains = [_hardware(site) for site in sites]
    common = {key: value for key, value in domains[0].items() if key not in ("name", "gpus")}
    whole = min(link.longest_s for link in mapped.facts) >= WHOLE_RUN_S
    wan = {
        "dataset": links,
        "streams": STREAMS,
        "min_duration_s": WHOLE_RUN_S if whole else 0.0,
        "cap_bps": CAP_BPS,
        "sites": {site: node for site, node in mapped.nodes.items() if site != node},
        "default_rtt_s": None if all(link.has_rtt for link in mapped.facts) else RTT_S,
    }
    return {
        "name": f"{model.name}-{len(sites)}-sites",
        "about": f"{model.name} over {', '.join(f'{s.name} ({s.gpus} {s.gpu})' for s in sites)}",
        "model": model.name,
        "job": {"global_batch": sequences, "micro_batches": [1, 2, 4], "zero": 1},
        "cluster": {
            "hardware": common, "domains": domains, "usd_per_gb": {"default": EGRESS_USD_PER_GB},
        },
        "wan": wan,
        "control": {"period_s": 300},
    }  # fmt: skip


def _hardware(site: Site) -> dict[str, Any]:
    """Returns a site as a domain with the usual node and network of its GPUs; smaller nodes where the GPUs do
    not fill those."""
    fabric = gpu_models.fabric(site.gpu)
    return {
        "name": site.name,
        "gpus": site.gpus,
        "gpu": site.gpu,
        "gpus_per_node": gcd(site.gpus, fabric.gpus_per_node),
        "intra_node_bps": fabric.intra_node_bps,
        "inter_node_bps": fabric.inter_node_bps,
        "intra_node_latency_s": fabric.intra_node_latency_s,
        "inter_node_latency_s": fabric.inter_node_latency_s,
        "usd_per_gpu_hour": gpu_models.USD_PER_HOUR.get(site.gpu, 0.0),
    }


def _assumed(
    model: Transformer, sites: Sequence[Site], mapped: SiteNodes, sequences: int, batch: int | None
) -> list[str]:
    """Returns what the words left open, one line each."""
    other = "" if batch else "; --batch sets another"
    lines = [
        mapped.words,
        f"batch of {sequences} sequences of {model.seq} tokens{other}",
        "1F1B, full recomputation, ZeRO 1, micro-batches of 1, 2 or 4; a scenario file sets others",
        f"egress {EGRESS_USD_PER_GB} USD per GB",
    ]
    unpriced = sorted({site.gpu for site in sites} - gpu_models.USD_PER_HOUR.keys())
    if unpriced:
        lines.append(f"no rental price of {', '.join(unpriced)} is known: it counts as 0")
    if not all(link.has_rtt for link in mapped.facts):
        lines.append(f"round trip of {1e3 * RTT_S:g} ms where the data set has none")
    return lines
