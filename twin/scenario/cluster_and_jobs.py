"""Builds the cluster and the training jobs that a scenario describes."""

from dataclasses import replace

from ingest.core.errors import UsageError
from ingest.core.units import GB, to_ns
from twin.calibration.calibration import Calibration
from twin.core import gpu_models, model_presets
from twin.core.adapters import Adapters
from twin.core.domain import Cluster, Domain, GpuType
from twin.core.job import JobSpec
from twin.core.switches import Switches
from twin.costs import energy
from twin.scenario.submission import Submission
from twin.settings.scenario_file import ClusterSettings, DomainSettings, GpuSettings, JobSettings, Scenario


def cluster(settings: ClusterSettings, constants: Calibration | None) -> Cluster:
    """Cluster of a scenario; the power of its GPUs is that of the calibration, if there is one."""
    domains = tuple(_domain(settings, domain) for domain in settings.domains)
    if constants is not None:
        domains = tuple(constants.site(domain, keep_links=True) for domain in domains)
    prices = tuple(
        tuple(0.0 if a is b else settings.usd_per_gb.price(a.name, b.name) for b in domains) for a in domains
    )
    return Cluster(domains, prices)


def _domain(settings: ClusterSettings, domain: DomainSettings) -> Domain:
    own = domain.model_dump(exclude_none=True)
    fields = settings.hardware.model_dump() | own
    if fields["gpus"] % fields["gpus_per_node"]:
        raise UsageError(
            f"domain {domain.name!r}: {fields['gpus']} GPUs do not fill nodes of {fields['gpus_per_node']}; "
            "change one of them"
        )
    own_model = settings.gpu_models.get(fields["gpu"])
    gpu = gpu_models.preset(fields["gpu"]) if own_model is None else _gpu_type(fields["gpu"], own_model)
    try:
        gpu = energy.limited(gpu, fields.pop("power_cap_w", None), fields.pop("clock_cap", None))
    except UsageError as error:
        raise UsageError(f"domain {domain.name!r}: {error}") from None
    return Domain(**(fields | {"gpu": gpu}))


def _gpu_type(name: str, sheet: GpuSettings) -> GpuType:
    return GpuType(
        name, sheet.teraflops * 1e12, sheet.fp32_teraflops * 1e12, int(sheet.memory_gb * GB),
        sheet.memory_gb_s * GB, sheet.idle_w, sheet.peak_w,
    )  # fmt: skip


def submissions(scenario: Scenario) -> tuple[Submission, ...]:
    """Jobs that the scenario lists, each with its training job."""
    return tuple(
        Submission(
            name=submitted.name,
            submit_ns=to_ns(submitted.submit_s),
            priority=submitted.priority,
            spec=job(scenario, submitted.model, submitted.job),
            tokens=submitted.tokens,
        )
        for submitted in scenario.jobs
    )


def job(scenario: Scenario, model: str | None = None, settings: JobSettings | None = None) -> JobSpec:
    """Training job of a scenario; `model` and `settings` replace its own."""
    used = settings or scenario.job
    trained = model_presets.preset(model or scenario.model)
    if used.lora is not None:
        trained = replace(trained, adapters=Adapters(used.lora.rank, used.lora.targets))
    return JobSpec(
        model=trained,
        global_batch=used.global_batch,
        micro_batches_allowed=used.micro_batches,
        schedule=used.schedule,
        p2p=used.p2p,
        recompute=used.recompute,
        zero=used.zero,
        chunks=used.chunks,
        schedules=used.schedules,
        sequence_parallel=used.sequence_parallel,
        context_parallel=used.context_parallel,
        ep=used.ep,
        switches=Switches(context_exchange=used.context_exchange, expert_imbalance=used.expert_imbalance),
        bytes_per_moved_parameter=scenario.moving.bytes_per_parameter,
    )
