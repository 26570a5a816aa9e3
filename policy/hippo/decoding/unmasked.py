"""Decoding without masks (an ablation): any share in any unused domain, until all layers are placed.

An illegal plan is replaced by the nearest legal one (`policy.hippo.decoding.action_encoding`).
"""

import numpy as np

from policy.hippo.tables.masks import Masks
from policy.hippo.tables.planning_tables import PlanningTables


class FreeMasks(Masks):
    """Every unused domain with every number of layers; the last domain takes all layers left."""

    def __init__(self, masks: Masks):
        self._take(masks.space)
        space, n = self.space, self.space.n_layers
        offered = (space.pp > 0).any(2)  # (C, Z): a configuration exists
        self.stages = (space.pp > 0).astype(np.int64)  # one layer suffices for any
        self.limit = np.broadcast_to(np.arange(n + 1, dtype=np.int16)[:, None], (*space.pp.shape, n + 1, 1))
        self.limit = np.ascontiguousarray(self.limit)
        self.whole = np.ones_like(self.limit, dtype=np.bool_)
        codes = np.arange(int(np.prod(self._counts + 1)))
        free = codes[:, None] // self._strides % (self._counts + 1) > 0  # (codes, Z): some domain is unused
        more = offered.astype(np.int64) @ free.T.astype(np.int64) > 0  # (C, codes): one that offers something
        nothing_left = np.arange(n + 1) == 0
        self.reach = np.ascontiguousarray((more[:, :, None] | nothing_left)[..., None])


class UnmaskedChoices:
    """The choices of a cluster without masks of memory."""

    def __init__(self, problem: PlanningTables):
        self.masks: Masks = FreeMasks(problem.masks)
        self.choice_table = problem.choice_table
