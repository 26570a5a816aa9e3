"""Choosing without masks, an ablation: any share anywhere, until all layers are placed.

What the twins run instead of an illegal plan is the nearest legal one (`policy.hippo.actions`).
"""

import numpy as np
from numpy.typing import NDArray

from policy.hippo.masks import Masks
from policy.hippo.problem import Problem

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


class FreeMasks(Masks):
    """Open: every unused domain with every number of layers; the last domain must take what is left."""

    def __init__(self, masks: Masks):
        self.space = masks.space
        some = np.asarray((masks.space.pp > 0).any(2))
        self._offered: Bool = some[:, masks.space.class_of]  # (C, K): a configuration exists

    def knobs(self) -> Bool:
        """Every knob that some domain has a configuration for."""
        return np.asarray(self._offered.any(1))

    def steps(self, knob: Int, used: Bool, left: Int, behind: Int) -> Bool:
        """As `Masks.steps`, whatever the memory."""
        open_ = self._offered[knob] & ~used
        last = open_.sum(1) == 1
        layers = np.arange(1, self.space.n_layers + 1)
        sizes = np.where(last[:, None], layers == left[:, None], layers <= left[:, None])
        return np.asarray(open_[:, :, None] & sizes[:, None])

    def choices(self, knob: Int, used: Bool, left: Int, behind: Int, domain: Int, layers: Int) -> Bool:
        """As `Masks.choices`: every configuration that exists."""
        return np.asarray(self.space.pp[knob, self.space.class_of[domain]] > 0)


class Free:
    """A problem without its masks."""

    def __init__(self, problem: Problem):
        self.masks: Masks = FreeMasks(problem.masks)
        self._problem = problem

    def choice_features(
        self, knob: Int, domain: Int, layers: Int, left: Int, behind: Int, current: Int
    ) -> NDArray[np.float32]:
        """As the problem's own."""
        return self._problem.choice_features(knob, domain, layers, left, behind, current)
