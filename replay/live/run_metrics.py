"""The metrics of a run or a training that goes on."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from ingest.core.units import BITS_PER_BYTE
from replay.live.exposition import Metric, Sample, one
from replay.live.pace import Pace
from replay.live.run_snapshot import LinkNow, RunSnapshot, ShareNow
from replay.live.training_curves import StageNow

Row = tuple[str, Literal["counter", "gauge"], str, Callable[[RunSnapshot], float | None]]

FIGURES: tuple[Row, ...] = (
    ("simulated_seconds_total", "counter", "Simulated time so far.", lambda run: run.now_s),
    ("simulated_end_seconds", "gauge", "Simulated time at which the run ends.", lambda run: run.end_s),
    ("iterations_total", "counter", "Complete iterations.", lambda run: run.kpis.iterations),
    ("trained_tokens", "gauge", "Tokens trained, less those lost by failures.", lambda run: run.kpis.tokens),
    ("token_seconds", "gauge", "Wall time per token.", lambda run: run.kpis.time_per_token_s),
    ("utilisation_ratio", "gauge", "Computing time of sites in the plan.", lambda run: run.kpis.utilisation),
    ("egress_usd_total", "counter", "Price of bytes between sites.", lambda run: run.kpis.egress_usd),
    ("gpu_usd_total", "counter", "Price of GPU time held.", lambda run: run.kpis.gpu_usd),
    ("tokens_per_second", "gauge", "Tokens per wall second.", lambda run: run.kpis.tokens_per_s),
    ("mfu_ratio", "gauge", "Model FLOPs over the peak of the GPUs held.", lambda run: run.kpis.mfu),
    (
        "usd_per_token",
        "gauge",
        "GPU time held and bytes between sites; GPUs without a price count as 0.",
        lambda run: run.kpis.total_usd_per_token,
    ),
    ("energy_joules_total", "counter", "Energy of the GPUs held.", lambda run: run.kpis.energy_j),
    ("wan_bytes_total", "counter", "Bytes between sites for training.", lambda run: run.kpis.wan_bytes),
    ("moved_bytes_total", "counter", "Bytes for changes of plan.", lambda run: run.kpis.moved_bytes),
    ("paused_seconds_total", "counter", "Pauses for changes of plan.", lambda run: run.kpis.paused_s),
    ("lost_seconds_total", "counter", "Time without iterations or pause.", lambda run: run.kpis.lost_s),
    ("decisions_total", "counter", "Decisions.", lambda run: run.kpis.decisions),
    ("plan_moves_total", "counter", "Changes of plan with a pause.", lambda run: run.kpis.moves),
    ("plan_turns_total", "counter", "Changes of knobs without a pause.", lambda run: run.kpis.turns),
    (
        "fallback_decisions_total",
        "counter",
        "Decisions not the policy's own.",
        lambda run: run.kpis.fallbacks,
    ),
    ("late_decisions_total", "counter", "Decisions over the deadline.", lambda run: run.kpis.late),
)
"""Name, kind, help and value of the figures of a run."""

LINKS: tuple[tuple[str, str, Callable[[LinkNow], float | None]], ...] = (
    ("link_bandwidth_bytes_per_second", "Newest measurement; 0: dead.", lambda link: link.observed_bps),
    ("link_estimated_bytes_per_second", "Filtered at the last decision.", lambda link: link.estimated_bps),
    ("link_forecast_bytes_per_second", "Forecast at the last decision.", lambda link: link.forecast_bps),
)
"""Name, help and bit/s of the rates of a link."""

SHARES: tuple[tuple[str, str, Callable[[ShareNow], int]], ...] = (
    ("plan_layers", "Layers at a site, in pipeline order.", lambda share: share.layers),
    ("plan_stages", "Pipeline stages at a site.", lambda share: share.stages),
    ("plan_gpus", "GPUs of the plan at a site.", lambda share: share.gpus),
)
"""Name, help and value of the figures of a share of a plan."""


def run_metrics(run: RunSnapshot | None, pace: Pace) -> Iterator[Metric]:
    """Yields the metrics of a run; before its first event those of the task alone."""
    yield from task_metrics(pace)
    if run is None:
        return
    labels = {"scenario": run.scenario, "policy": run.policy, "engine": run.engine, "seed": str(run.seed)}
    yield Metric("twin_run_info", "gauge", "What is run; always 1.", (Sample(1, labels),))
    for name, kind, words, value in FIGURES:
        yield one(f"twin_{name}", kind, words, value(run))
    yield from _links(run)
    yield from _plans(run)


def training_metrics(stages: Sequence[StageNow], pace: Pace) -> Iterator[Metric]:
    """Yields the metrics of a training."""
    yield from task_metrics(pace)
    updates = [Sample(stage.updates, {"stage": stage.name}) for stage in stages]
    yield Metric("twin_training_updates_total", "counter", "Updates that were reported.", updates)
    steps = [Sample(stage.steps, {"stage": stage.name}) for stage in stages]
    yield Metric("twin_training_environment_steps_total", "counter", "Steps of the environment.", steps)
    yield Metric("twin_training_figure", "gauge", "Newest value of a figure: loss, reward and so on.", [
        Sample(value, {"stage": stage.name, "figure": name})
        for stage in stages
        for name, value in stage.metrics.items()
    ])  # fmt: skip


def task_metrics(pace: Pace) -> Iterator[Metric]:
    """Yields how far the newest task has come, by the clock on the wall."""
    yield one("twin_task_done_ratio", "gauge", "Share of the newest task that is done.", pace.share)
    yield one("twin_task_elapsed_seconds", "gauge", "Time since the newest task began.", pace.elapsed_s)
    yield one("twin_task_left_seconds", "gauge", "Time left at the pace so far.", pace.left_s)


def _links(run: RunSnapshot) -> Iterator[Metric]:
    ends = [(link, {"src": link.src, "dst": link.dst}) for link in run.links]
    for name, words, rate_bps in LINKS:
        rates = [(rate_bps(link), labels) for link, labels in ends]
        yield Metric(f"twin_{name}", "gauge", words, [
            Sample(rate / BITS_PER_BYTE, labels) for rate, labels in rates if rate is not None
        ])  # fmt: skip
    yield Metric("twin_link_latency_seconds", "gauge", "Newest measurement, one way.", [
        Sample(link.latency_s, labels) for link, labels in ends if link.latency_s is not None
    ])  # fmt: skip
    yield one("twin_link_forecast_horizon_seconds", "gauge", "How far a forecast looks.", run.horizon_s)


def _plans(run: RunSnapshot) -> Iterator[Metric]:
    shares = [
        (share, {"job": plan.job, "position": str(number), "site": share.site})
        for plan in run.plans
        for number, share in enumerate(plan.shares)
    ]
    for name, words, value in SHARES:
        yield Metric(f"twin_{name}", "gauge", words, [
            Sample(value(share), labels) for share, labels in shares
        ])  # fmt: skip
