"""The state of a training: its updates so far, and the newest figures of each stage."""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

CURVE = 120
"""Latest points of a curve that are kept."""


class CurvePoint(Protocol):
    """One update, see `policy.hippo.training.state.LearningCurvePoint`."""

    @property
    def stage(self) -> str: ...  # noqa: D102 - as there
    @property
    def update(self) -> int: ...  # noqa: D102
    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def metrics(self) -> dict[str, float]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class StageNow:
    """A stage of a training: points told so far, environment steps, newest figures, and the curve of one."""

    name: str
    updates: int
    steps: int
    metrics: dict[str, float]
    figure: str  # which one `curve` is of: loss or reward
    curve: tuple[float, ...]


@dataclass(slots=True)
class _Stage:
    updates: int = 0
    steps: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    curve: deque[float] = field(default_factory=lambda: deque(maxlen=CURVE))


class TrainingCurves:
    """Takes the updates of a training; `latest` holds its stages in the order in which they began."""

    def __init__(self) -> None:
        self.latest: tuple[StageNow, ...] = ()
        self._stages: dict[str, _Stage] = {}

    def tell(self, point: CurvePoint) -> None:
        """Takes an update. Figures that an update lacks keep their last value."""
        stage = self._stages.setdefault(point.stage, _Stage())
        stage.updates += 1
        stage.steps = point.steps
        stage.metrics = stage.metrics | point.metrics
        figure = figure_of(stage.metrics)
        if figure in point.metrics:
            stage.curve.append(point.metrics[figure])
        self.latest = tuple(
            StageNow(name, one.updates, one.steps, one.metrics, figure_of(one.metrics), tuple(one.curve))
            for name, one in self._stages.items()
        )


def figure_of(metrics: dict[str, float]) -> str:
    """Returns the figure whose curve tells how a stage goes."""
    return "loss" if "loss" in metrics else "reward"
