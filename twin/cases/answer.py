"""Answer to one case: time and interval, memory, utilisation, traffic, money, energy, critical cycle."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ingest.core.units import GB, NS_PER_S, to_ns, to_s
from twin.calibration import residual_quantiles
from twin.calibration.lake_profiles import LakeProfiles
from twin.calibration.residual_quantiles import PROFILES, SCHEDULE, Residuals
from twin.cases import stage_durations
from twin.cases.case import Case
from twin.cases.column_definitions import BadCellError
from twin.cases.limits import limits, site_names
from twin.cases.stage_durations import Modelled
from twin.core import gpu_models, schedules
from twin.core.domain import Domain
from twin.core.plan import Sync
from twin.costs import energy, replica_sync, tied_embeddings
from twin.costs.layer_compute import ComputeModel, layer_times
from twin.costs.memory import WORKSPACE_BYTES, needed_bytes, workspace_bytes
from twin.estimation.training_cost import TrainingCost
from twin.pipeline import critical_cycle
from twin.pipeline.kernel import DEAD
from twin.pipeline.pipeline import Pipeline

USD_PER_GB = 0.02
"""Egress between regions of one continent (the price Sailor charges, SOSP 2025)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Estimate of one iteration of a case; None where a figure is undetermined (no model, no message size).

    `peak_mem_bytes` is the peak of the allocator (`max_memory_allocated`), `device_mem_bytes` includes the
    process's context and buffers, as nvidia-smi does; `fits` compares it, with a margin, to the GPU's memory.
    """

    case: str
    iter_s: float
    iter_s_low: float
    iter_s_high: float
    peak_mem_bytes: int | None
    device_mem_bytes: int | None
    fits: bool | None
    utilisation: float
    mfu: float | None
    bubble_s: float
    exposed_comm_s: float
    wan_bytes: float | None
    usd: float | None
    energy_j: float
    token_efficiency: float | None
    binding: str
    basis: str
    interval: str
    tokens_per_s: float | None = None
    rent_usd: float | None = None
    usd_per_1e9_tokens: float | None = None
    limit: str = ""
    limit_saved: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """An answer and its parts: durations of stages and boundaries, and peak bytes per stage (S,)."""

    answer: Answer
    timing: Pipeline
    peak_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of answers: the compute model, fitted properties of a site, and
    profiles that take the place of the compute model where they measured."""

    compute: ComputeModel = layer_times
    source: str = "built-in constants"
    site: Callable[[Domain, bool], Domain] | None = None
    profiles: LakeProfiles | None = None

    def domain(self, site: Domain, keep_links: bool) -> Domain:
        """`site` with its fitted properties."""
        if self.site is not None:
            site = self.site(site, keep_links)
        return site if self.profiles is None else self.profiles.site(site, keep_links)


BUILT_IN = Constants()


def answer(case: Case, constants: Constants = BUILT_IN) -> Answer:
    """Answer to `case`.

    Raises:
        BadCellError: the case cannot run at all, for a reason found only now.
    """
    return explain(case, constants).answer


def explain(case: Case, constants: Constants = BUILT_IN) -> Explained:
    """Answer to `case` with its parts."""
    given = "intra_node_bps" not in case.defaults
    sites = tuple(constants.domain(site, given) for site in case.sites)
    case = replace(case, site=constants.domain(case.site, given), sites=sites)
    modelled = None
    if case.model is not None:
        modelled = stage_durations.modelled(case, constants.profiles or constants.compute)
        modelled = _updated(case, modelled, constants.profiles)
    timing, update = stage_durations.durations(case, modelled)
    total = stage_durations.iteration_ns(case, timing) + _exchange_ns(case)
    silent = replace(
        timing, of=timing.of * 0, lf=timing.lf * 0, ob=timing.ob * 0, lb=timing.lb * 0, tail=update
    )
    alone = stage_durations.iteration_ns(case, silent)
    peak = () if modelled is None else stage_durations.peak_bytes(case, modelled)
    found = _describe(case, constants, timing, silent, total, alone, peak)
    limit = limits(case, timing, update, _exchange_ns(case))
    found = replace(found, limit=limit.text, limit_saved=limit.limiting.saved)
    return Explained(found, timing, peak)


def _updated(case: Case, modelled: Modelled, profiles: LakeProfiles | None) -> Modelled:
    """`modelled` with the optimiser's time that the profiles measured, shared by dp with ZeRO."""
    assert case.model is not None and case.job is not None
    if profiles is None:
        return modelled
    layers = profiles.update_s(case.model, case.site, case.tp, case.micro_batch)
    if layers is None:
        return modelled
    ends = np.cumsum(case.counts)[:-1]
    seconds = np.array([part.sum() for part in np.split(layers, ends)])
    return modelled.with_update(seconds / (case.ranks if case.job.zero else 1))


def residuals(case: Case, constants: Constants = BUILT_IN) -> Residuals:
    """Errors of runs whose stage times come from where those of `case` do."""
    profiles = constants.profiles
    if case.measured.schedule_only:
        return SCHEDULE
    if profiles is not None and case.model is not None and case.job is not None:
        found = profiles.look(case.model, case.site, case.tp, case.micro_batch, case.job.tensor_mode)
        if found.times is not None:
            return PROFILES
    return residual_quantiles.of({site.gpu.name for site in case.of_stages}, case.gpus)


def _basis(case: Case, constants: Constants) -> str:
    """Source of the stage times in words.

    Raises:
        BadCellError: the profiles are those of another model or GPU.
    """
    profiles, model, job = constants.profiles, case.model, case.job
    if case.measured.schedule_only:
        return "measured stage times"
    if profiles is None or model is None or job is None:
        return constants.source
    if case.sites:
        raise BadCellError("gpu_models", "profiles are those of one GPU model: leave them out here")
    reason = profiles.refusal(model, case.site.gpu.name)
    if reason is not None:
        raise BadCellError("profile_model", reason)
    found = profiles.look(model, case.site, case.tp, case.micro_batch, job.tensor_mode)
    if found.times is None:
        return f"{constants.source} (profiles {profiles.dataset}: {found.where})"
    return f"profiles {profiles.dataset}: {found.where}"


def _describe(
    case: Case, constants: Constants, timing: Pipeline, silent: Pipeline, total: int, alone: int,
    peak: tuple[int, ...],
) -> Answer:  # fmt: skip
    if total == DEAD:
        raise BadCellError("wan_bps", "an iteration would never end; raise the bandwidth")
    iter_s = to_s(total)
    busy_s = (timing.busy_ns + silent.tail)[:, 0] / NS_PER_S
    by_domain = [
        float(np.mean([b for b, k in zip(busy_s, case.domains, strict=True) if k == domain])) / iter_s
        for domain in dict.fromkeys(case.domains)
    ]
    spread = residuals(case, constants)
    low, high = spread.interval(iter_s)
    wan_bytes, tokens, rent_usd = _wan_bytes(case), _tokens(case), _rent_usd(case, iter_s)
    allocated = allocator_bytes(case, peak)
    largest = max(allocated, default=None)
    given = None if case.job is None else case.job.switches.context_bytes
    context = WORKSPACE_BYTES - workspace_bytes(case.site.gpu.name) if given is None else given
    return Answer(
        case=case.label,
        iter_s=iter_s,
        iter_s_low=low,
        iter_s_high=high,
        peak_mem_bytes=largest,
        device_mem_bytes=None if largest is None else largest + context,
        fits=_fits(case, allocated, context),
        utilisation=float(np.mean(by_domain)),
        mfu=_mfu(case, iter_s),
        bubble_s=to_s(alone) - float(np.mean(busy_s)),
        exposed_comm_s=to_s(total - alone),
        wan_bytes=wan_bytes,
        usd=None if wan_bytes is None else wan_bytes / GB * USD_PER_GB,
        energy_j=sum(
            energy.energy_j(site.gpu, case.gpus // case.pp, float(busy), iter_s)
            for site, busy in zip(case.of_stages, busy_s, strict=True)
        ),
        token_efficiency=_token_efficiency(case),
        binding="exchange between replicas" if 2 * _exchange_ns(case) > total else _binding(case, timing),
        basis=_basis(case, constants),
        interval=spread.basis,
        tokens_per_s=None if tokens is None else tokens / iter_s,
        rent_usd=rent_usd,
        usd_per_1e9_tokens=_usd_per_billion(tokens, iter_s, rent_usd, wan_bytes),
    )


def _tokens(case: Case) -> int | None:
    """Tokens of an iteration; None without a model."""
    return None if case.model is None else case.global_batch * case.model.seq


def _rent_usd(case: Case, iter_s: float) -> float | None:
    """Rent of all GPUs for an iteration at list prices; None where one of them is not known."""
    prices = [gpu_models.USD_PER_HOUR.get(site.gpu.name) for site in case.of_stages]
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return None
    return sum(known) / len(known) * case.gpus * iter_s / 3600.0


def _usd_per_billion(
    tokens: int | None, iter_s: float, rent_usd: float | None, wan_bytes: float | None
) -> float | None:
    """Rent and egress of 1e9 tokens; None where a part is not known."""
    if tokens is None or rent_usd is None or wan_bytes is None:
        return None
    cost = TrainingCost(tokens, iter_s, rent_usd, wan_bytes / GB * USD_PER_GB, 0.0, None, None)
    return cost.per_billion_tokens()["total"]


def _exchange_ns(case: Case) -> int:
    """Nanoseconds of averaging between replicas that fall on one iteration."""
    ring = case.replicas
    if ring.count == 1:
        return 0
    if case.model is None:
        raise BadCellError("replicas", "give layers and hidden: what replicas exchange is the model")
    parameters = case.model.trained_parameters
    return to_ns(replica_sync.ring_s(parameters, ring.count, ring.inner_steps, ring.bps, ring.latency_s))


def _token_efficiency(case: Case) -> float | None:
    """Tokens of synchronous training that one of this case is worth."""
    if case.model is None:
        return None
    ring = case.replicas
    return replica_sync.token_efficiency(case.model.parameters, ring.inner_steps, ring.count)


def _mfu(case: Case, iter_s: float) -> float | None:
    """Model FLOPs (no recompute) over the peak of the GPUs."""
    if case.model is None:
        return None
    done = case.model.flops_per_sequence * case.global_batch
    peaks = sum(site.gpu.peak_flops for site in case.of_stages) * (case.gpus // case.pp)
    return float(done / (iter_s * peaks))


def allocator_bytes(case: Case, peak: tuple[int, ...]) -> tuple[int, ...]:
    """Peak of the allocator on each stage (S,): without what lies outside it, with what libraries hold in it;
    `peak` (S,) has one constant for both."""
    sites = case.of_stages if peak else ()
    return tuple(
        one - WORKSPACE_BYTES + workspace_bytes(site.gpu.name) for one, site in zip(peak, sites, strict=True)
    )


def _fits(case: Case, allocated: tuple[int, ...], context: int) -> bool | None:
    """Whether the peaks of all stages, a margin and the context fit into their GPUs."""
    if not allocated:
        return None
    needed = [needed_bytes(one, context) for one in allocated]
    return all(one <= site.gpu.memory_bytes for one, site in zip(needed, case.of_stages, strict=True))


def _wan_bytes(case: Case) -> float | None:
    """Bytes between domains in one iteration, both directions: 2 A dp m a boundary, once a chunk, and
    interleaved once less from the last stage back to the first; and what these two exchange for a tied
    embedding."""
    if case.replicas.count > 1 and case.model is not None:
        ring = case.replicas
        each = case.model.trained_parameters * Sync().bytes_per_parameter
        return 2.0 * (ring.count - 1) * each / ring.inner_steps
    across = case.chunks * sum(wan is not None for wan in case.wan)
    across += (case.chunks - 1) * (case.returns and case.around is not None)
    if not across:
        return 0.0
    if case.message_bytes is None:
        return None
    tied_bytes = 0
    if case.job is not None and case.around is not None:
        together = schedules.turns(case.schedule)  # the first stage has embedding and head
        tied_bytes = tied_embeddings.iteration_bytes(case.job, 1 if together else case.pp)
    messages = across * case.message_bytes * case.micro_batches
    return 2.0 * case.dp * (messages + case.context_parallel * tied_bytes)


def _binding(case: Case, timing: Pipeline) -> str:
    found = critical_cycle.binding(timing)
    names = site_names(case)
    first, last = (names[case.domains[end]] for end in (found.first, found.last))
    return f"{found} ({first})" if first == last else f"{found} ({first} to {last})"
