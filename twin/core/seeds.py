"""One named random generator per component, all derived from the run's seed."""

from zlib import crc32

import numpy as np


def generator(seed: int, component: str) -> np.random.Generator:
    """The generator of `component`; the name, not the order of creation, decides its stream."""
    return np.random.default_rng(np.random.SeedSequence([seed, crc32(component.encode())]))
