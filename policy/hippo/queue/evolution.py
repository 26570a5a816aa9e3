"""The control: an evolution strategy on the weights of a small scorer, which sees whole windows alone.

Antithetic Gaussian steps, their gains as centred ranks, one ascent step (Salimans et al., arXiv:1703.03864).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from policy.hippo.queue.rollout import starts
from policy.hippo.queue.windows import Window, log_slowdown
from twin.queue.jobs import Float
from twin.queue.recipe import JobScorer

PAIRS, SPREAD, RATE, WINDOWS, MOMENTUM = 8, 0.05, 0.05, 2, 0.9
"""Pairs of neighbours, their standard deviation, step size, windows of a step, and momentum; deviation and
step are relative to the root mean square of the weights."""


class Evolution:
    """A scorer that improves by comparing neighbours of itself by their `gain` on windows."""

    def __init__(
        self, scorer: JobScorer, gain: Callable[[JobScorer, list[Any]], float] | None = None
    ) -> None:
        self.scorer, self.gain = scorer, gain or slowdown_gain
        self.scale = float(np.sqrt((scorer.weights**2).mean()))
        self.velocity = np.zeros(len(scorer.weights))

    def step(self, windows: Sequence[Any], random: np.random.Generator) -> None:
        """Tries neighbours on some windows, and moves towards those that do better."""
        chosen = [windows[at] for at in random.integers(len(windows), size=WINDOWS)]
        noise = random.standard_normal((PAIRS, len(self.scorer.weights)))
        steps = np.concatenate((noise, -noise))
        gains = np.array([self.gain(self._moved(SPREAD * step), chosen) for step in steps])
        ranks = np.argsort(np.argsort(gains)) / (len(gains) - 1) - 0.5
        ascent = ranks @ steps / len(steps)
        self.velocity = MOMENTUM * self.velocity + (1 - MOMENTUM) * ascent
        self.scorer = self._moved(RATE * self.velocity / (np.sqrt((self.velocity**2).mean()) + 1e-12))

    def _moved(self, by: Float) -> JobScorer:
        return JobScorer(self.scorer.widths, self.scorer.weights + self.scale * by)


def slowdown_gain(scorer: JobScorer, windows: list[Window]) -> float:
    """Returns how much lower the mean log bounded slowdown is than the heuristic's, mean over windows."""
    return float(
        np.mean([one.log_slowdown - log_slowdown(one.part, starts(one.part, scorer)) for one in windows])
    )
