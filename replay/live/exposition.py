"""Metrics in the text format of Prometheus, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/; names and units after
https://prometheus.io/docs/practices/naming/: base units (seconds, bytes, joules) in the name, `_total` for
what only grows, `_ratio` for shares.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric and its labels."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with its samples; one without samples is left out of the text."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[Sample]


def one(name: str, kind: Literal["counter", "gauge"], help_text: str, value: float | None) -> Metric:
    """Returns a metric with a single sample; None: without one."""
    return Metric(name, kind, help_text, () if value is None else (Sample(value),))


def text(metrics: Iterable[Metric]) -> str:
    """Returns the metrics as text, in the order given."""
    return "".join(map(_lines, metrics))


def _lines(metric: Metric) -> str:
    if not metric.samples:
        return ""
    words = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    head = f"# HELP {metric.name} {words}\n# TYPE {metric.name} {metric.kind}\n"
    return head + "".join(
        f"{metric.name}{_labels(sample.labels)} {_number(sample.value)}\n" for sample in metric.samples
    )


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
