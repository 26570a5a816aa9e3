"""The GPUs of a row of cases, stage by stage, and the links inside their domain."""

from collections.abc import Mapping

from ingest.core.errors import UsageError
from twin.cases.column_definitions import BadCellError, Cell
from twin.core import gpu_models
from twin.core.domain import Domain
from twin.costs import energy

Kinds = tuple[str, ...]
"""GPU model of every stage (S,)."""


def kinds_of(cells: Mapping[str, Cell], pp: int, domains: tuple[int, ...]) -> Kinds:
    """GPU model of every stage.

    Raises:
        BadCellError: the list fits neither the stages nor the domains, or stands beside a single model.
    """
    given: Kinds | None = cells.get("gpu_models")
    if given is None:
        return (cells.get("gpu_model", "A100-80"),) * pp
    if "gpu_model" in cells:
        raise BadCellError("gpu_models", "gpu_model is one for all stages: empty that cell or this")
    if len(given) == pp:
        return given
    if len(given) != len(set(domains)):
        raise BadCellError(
            "gpu_models", f"{len(given)} entries for {pp} stages in {len(set(domains))} domains; name the "
            "GPU model of every stage, or of every domain",
        )  # fmt: skip
    return tuple(given[domain] for domain in domains)


def sites_of(cells: Mapping[str, Cell], kinds: Kinds, gpus: int) -> tuple[Domain, ...]:
    """Site of every stage: `gpus` of its model, in its usual server unless the row says otherwise."""
    made = {kind: _site(cells, kind, gpus) for kind in set(kinds)}
    return tuple(made[kind] for kind in kinds)


def _site(cells: Mapping[str, Cell], kind: str, gpus: int) -> Domain:
    """Site of GPUs of one model."""
    usual = gpu_models.fabric(kind)
    per_node = cells.get("gpus_per_node", usual.gpus_per_node)
    intra, inter = (
        cells.get("intra_node_bps", usual.intra_node_bps),
        cells.get("inter_node_bps", usual.inter_node_bps),
    )
    try:
        gpu = energy.limited(gpu_models.preset(kind), cells.get("power_cap_w"), cells.get("clock_cap"))
    except UsageError as error:
        raise BadCellError("power_cap_w", str(error)) from None
    return Domain(
        "site", gpu, gpus, per_node, intra, inter,
        usual.intra_node_latency_s, usual.inter_node_latency_s, 0.0,
    )  # fmt: skip
