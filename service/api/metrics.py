"""Metrics of a service for Prometheus, by its own client library."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from ingest.core.units import NS_PER_S
from replay.metrics.prediction_accuracy import merged
from service.api.connections import REASONS, Connections
from service.api.stream import Hub
from service.api.webhook import Webhook
from service.session.session import Session
from service.sources.feeder import Feeder
from twin.world.observed_job import ObservedJob

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


JOB_FIGURES: tuple[tuple[str, str, Callable[[ObservedJob], float]], ...] = (
    ("twin_job_active", "1 from the submission of a job to its end.", lambda job: job.active),
    (
        "twin_job_running",
        "1 while it has a plan in force.",
        lambda job: job.orders.in_force is not None,
    ),
    ("twin_job_gpus", "GPUs of its plan.", lambda job: sum(job.held) if job.active else 0),
    ("twin_job_tokens", "Tokens of the steps that it reported.", lambda job: job.tokens),
    ("twin_job_order_waits", "1 while an order waits for it.", lambda job: job.orders.waiting is not None),
)
"""Metrics of each of several jobs, with the label `job`."""


class ServiceMetrics(Collector):
    """Figures of a session and of its stream, made when they are asked for, in the session's thread."""

    def __init__(
        self, session: Session, hub: Hub, feeders: Sequence[Feeder] = (), webhook: Webhook | None = None
    ) -> None:
        self._session, self._hub, self._feeders, self._webhook = session, hub, feeders, webhook
        self.connections: Connections | None = None
        """Those of the listener, once it serves."""
        self.registry = CollectorRegistry()
        self._latency = Histogram(
            "twin_decision_latency_seconds", "Wall-clock time of a decision.", buckets=BUCKETS_S,
            registry=self.registry,
        )  # fmt: skip
        self.registry.register(self)
        session.listeners.append(self._observe)

    def text(self) -> tuple[bytes, str]:
        """Returns the metrics as text, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def describe(self) -> Iterable[Metric]:
        """Returns nothing: the names are known when they are collected."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yields the figures of now."""
        state, world, now = self._session.state, self._session.world, self._session.published
        yield _counter("twin_observations", "Observations accepted.", self._session.intake.accepted)
        yield _counter("twin_observations_refused", "Observations refused.", self._session.intake.refused)
        set_aside = state.counts.get("message_quarantined", 0)
        yield _counter(
            "twin_messages_quarantined", "Messages that broke the run and were set aside.", set_aside
        )
        yield _counter("twin_decisions", "Decisions of the run.", now.decisions)
        yield _counter("twin_decisions_fallback", "Decisions replaced by a fallback.", state.fallbacks)
        yield _counter("twin_orders", "Orders given to the job.", state.counts.get("order_given", 0))
        yield _counter("twin_events", "Events in the log.", now.events)
        yield _counter("twin_steps", "Steps that the job reported.", state.step_count)
        yield _counter("twin_tokens", "Tokens of these steps.", now.tokens)
        yield _gauge(
            "twin_queue_requests", "Requests that wait for the session.", self._session.inbox.waiting
        )
        yield _gauge("twin_stream_clients", "Clients of the stream.", self._hub.clients)
        yield _counter("twin_stream_dropped", "Clients of the stream let go as too slow.", self._hub.dropped)
        yield from self._network()
        yield _gauge("twin_active", "1 while decisions order plans.", now.mode == "active")
        orders = sum(job.order is not None for job in now.jobs.values())
        yield _gauge("twin_order_waits", "Orders that wait for their job.", orders)
        yield from self._jobs()
        yield _gauge("twin_log_problem", "1 while the log cannot be written.", bool(self._session.problem))
        watch = self._session.clock_watch
        yield _gauge("twin_clock_problem", "1 while the machine's clock is in doubt.", bool(watch.problem))
        yield _gauge(
            "twin_clock_ahead_seconds", "How far the machine's clock is ahead of the run.",
            watch.ahead_ns / NS_PER_S,
        )  # fmt: skip
        yield self._innovation(world.link_filter.nis)
        yield self._coverage()
        yield from self._sources()

    def _network(self) -> Iterator[Metric]:
        """Yields the figures of webhook and listener, where there are any."""
        if (hook := self._webhook) is not None:
            yield _gauge("twin_webhook_waiting", "Events that have not arrived at the webhook.", hook.waiting)
            yield _counter("twin_webhook_delivered", "Events that have arrived there.", hook.arrived)
            yield _counter("twin_webhook_refused", "Events that it will never take.", hook.refused)
            yield _counter("twin_webhook_failed", "Tries to post that failed.", hook.failed)
            yield _gauge("twin_webhook_problem", "1 while the last try failed.", bool(hook.problem))
        if self.connections is None:
            return
        yield _gauge("twin_connections", "Connections that are open.", len(self.connections))
        yield _gauge("twin_connections_limit", "Most connections at once.", self.connections.total)
        ended = CounterMetricFamily(
            "twin_connections_ended", "Connections that were ended or refused.", labels=["reason"]
        )
        for reason in REASONS:
            ended.add_metric([reason], self.connections.ended[reason])
        yield ended

    def _jobs(self) -> Iterator[Metric]:
        """Yields the figures of each of several jobs; those of the only one stand above."""
        jobs = [job for name, job in self._session.world.jobs.items() if name]
        for name, text, figure in JOB_FIGURES:
            family = GaugeMetricFamily(name, text, labels=["job"])
            for job in jobs:
                family.add_metric([job.name], figure(job))
            yield family

    def _innovation(self, nis: Any) -> GaugeMetricFamily:
        help_ = "Running normalised innovation squared of a link over that of training; about 1 is usual."
        family = GaugeMetricFamily("twin_filter_innovation_ratio", help_, labels=["src", "dst"])
        names = self._session.state.domains
        for i, j in np.argwhere(~np.eye(len(names), dtype=bool)):
            family.add_metric([names[i], names[j]], float(nis[i, j]))
        return family

    def _coverage(self) -> GaugeMetricFamily:
        help_ = "Share of samples inside the interval that was forecast for them, all links, by horizon."
        family = GaugeMetricFamily("twin_forecast_coverage_ratio", help_, labels=["interval", "horizon"])
        found = self._session.state.coverage
        for h, horizon_s in enumerate(found.horizons_s):
            shares = merged([errors[h] for errors in found.found.values()]).covered if found.found else None
            for interval, share in zip(("80", "95"), shares or (), strict=False):
                family.add_metric([interval, f"{horizon_s:g}"], share)
        return family

    def _sources(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("twin_source_up", "1 while a source could be read.", labels=["source"])
        lines = ["source", "outcome"]
        items = CounterMetricFamily(
            "twin_source_items", "Items of a source: what became of them.", labels=lines
        )
        for feeder in self._feeders:
            name = feeder.source.name
            up.add_metric([name], float(feeder.up))
            counts = ("accepted", feeder.accepted), ("refused", feeder.refused), ("old", feeder.old)
            for outcome, count in counts:
                items.add_metric([name, outcome], count)
        yield from (up, items)

    def _observe(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            if event["event"] == "decided" and event["latency_s"] is not None:
                self._latency.observe(event["latency_s"])


def _counter(name: str, help_text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, help_text, value)


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, float(value))
