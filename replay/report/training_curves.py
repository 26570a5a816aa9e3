"""The report of a training: its curves, a chart for each figure of each stage."""

from html import escape
from itertools import groupby

from replay.report.run_data import Json, Story
from replay.report.svg import Chart

FIGURES = (
    ("loss", "loss of imitation"),
    ("validation_score", "score on the validation part, above 0: better than the static plan"),
    ("reward", "mean reward"),
    ("moves", "moves a decision"),
    ("entropy", "entropy of the choice"),
    ("approx_kl", "distance to the policy before the update (KL)"),
    ("validation_moves", "moves on the validation part"),
)
"""(name in the log, words)."""


def curves(story: Story) -> str:
    """The figures of every stage over its updates; "" for a run that is no training."""
    stages = [
        (stage, list(updates)) for stage, updates in groupby(story.updates, key=lambda one: one["stage"])
    ]
    return "".join(_stage(stage, updates) for stage, updates in stages)


def _stage(stage: str, updates: list[Json]) -> str:
    charts = "".join(_curve(updates, name, words) for name, words in FIGURES)
    last = updates[-1]
    told = f"{last['update']:,} updates, {last['steps']:,} steps of the environment"
    return (
        f'<h2>Training: {escape(stage)}</h2><p class="small-text soft">{told}.</p>'
        f'<div class="many">{charts}</div>'
    )


def _curve(updates: list[Json], name: str, words: str) -> str:
    points = [(one["update"], one["metrics"][name]) for one in updates if name in one["metrics"]]
    if not points:
        return ""
    values = [value for _, value in points]
    room = 0.08 * (max(values) - min(values)) or 0.1 * abs(values[0]) or 1.0
    chart = Chart(points[-1][0], max(values) + room, "", low=min(values) - room, axis="updates")
    chart.line(points, "")
    chart.dots(points, "")
    caption = f"<strong>{escape(words)}</strong>, last {values[-1]:.4g}"
    return chart.html(caption, small=True, label=f"{name} over updates")
