"""Sections of a training: a chart for each figure of each stage, over its updates."""

from itertools import groupby

from replay.log.events import Json
from replay.report.drawing.plot import Plot
from replay.report.drawing.section import Section, chart_section
from replay.report.run_data import RunData

FIGURES = (
    ("loss", "loss of imitation"),
    ("validation_score", "score on the validation part, above 0: better than the static plan"),
    ("reward", "mean reward"),
    ("moves", "moves a decision"),
    ("entropy", "entropy of the choice"),
    ("approx_kl", "distance to the policy before the update (KL)"),
    ("validation_moves", "moves on the validation part"),
)
"""(name in the log, name on the page)."""


def curves(run: RunData) -> list[Section]:
    """A section for each stage; none for a run that is no training."""
    stages = groupby(run.updates, key=lambda update: update["stage"])
    return [_stage(stage, list(updates)) for stage, updates in stages]


def _stage(stage: str, updates: list[Json]) -> Section:
    intro = f"{updates[-1]['update']:,} updates, {updates[-1]['steps']:,} steps of the environment."
    charts = [chart for name, title in FIGURES if (chart := _curve(updates, name, title)) is not None]
    return chart_section(f"Training: {stage}", charts, "many", intro=intro)


def _curve(updates: list[Json], name: str, title: str) -> Plot | None:
    points = [(one["update"], one["metrics"][name]) for one in updates if name in one["metrics"]]
    if not points:
        return None
    values = [value for _, value in points]
    room = 0.08 * (max(values) - min(values)) or 0.1 * abs(values[0]) or 1.0
    chart = Plot(
        points[-1][0], max(values) + room, "", title, f", last {values[-1]:.4g}", min(values) - room,
        axis="updates", size="small",
    )  # fmt: skip
    chart.line(points, name)
    return chart
