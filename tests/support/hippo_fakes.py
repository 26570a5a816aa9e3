"""A small random decision problem: random features over a random space of plans."""

import numpy as np
import torch
from numpy.typing import NDArray

from policy.hippo.tables.masks import Masks, Space
from policy.hippo.tables.observation import CHOICE, EDGE, GLOBAL, KNOB, NODE, Observation

Ints = NDArray[np.int64]


class FakeProblem:
    """K domains that can each hold half of N layers, two knobs, configurations of one or two stages."""

    def __init__(self, k: int = 3, n: int = 8, share: int | None = None):
        self.k, self.n = k, n
        pp = np.tile(np.array([1, 2]), (2, 1, 1))
        capacity = np.full((2, 1, 2, 4, 2, 2), share or (n + 1) // 2, dtype=np.int64)
        capacity[:, :, :, 2:] = max((share or (n + 1) // 2) - 1, 1)
        self.masks = Masks(
            Space(n, np.array([4, 8]), np.zeros(k, dtype=np.int64), np.ones_like(pp), pp, capacity, False)
        )
        table = np.random.default_rng(k).random((*pp.shape, CHOICE - 4))
        self.choice_table = table.astype(np.float32)

    def observation(self, batch: int, seed: int = 0) -> Observation:
        g = torch.Generator().manual_seed(seed)
        mask = torch.from_numpy(self.masks.knobs()).expand(batch, -1)
        none = torch.full((batch, self.k), -1)
        return Observation(
            nodes=torch.randn(batch, self.k, NODE, generator=g),
            edges=torch.randn(batch, self.k, self.k, EDGE, generator=g),
            globals=torch.randn(batch, GLOBAL, generator=g),
            knobs=torch.randn(batch, 2, KNOB, generator=g),
            knob_mask=mask,
            may_hold=torch.ones(batch, dtype=torch.bool),
            begin=none,
            end=none,
            pace=torch.ones(batch, self.k),
            current=none,
            current_knob=torch.full((batch,), -1),
        )
