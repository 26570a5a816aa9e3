"""Pareto fronts of several objectives: front, coverage and hypervolume.

Every objective is minimised: utilisation enters as its negative.
"""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

TOLERANCE = 0.02
"""A point counts as covered by one that is at most this share worse in every objective."""
MARGIN = 0.1
"""The corner of a hypervolume lies this share of the front's extent beyond its worst values."""


def front(points: Values) -> Values:
    """Returns the distinct points (n, d) that no other one weakly dominates, in lexicographic order."""
    distinct = np.unique(points, axis=0)
    weakly = (distinct[:, None] <= distinct[None]).all(axis=2)  # [a, b]: a dominates b or is b
    return np.asarray(distinct[weakly.sum(axis=0) == 1])


def coverage(own: Values, reference: Values, tolerance: float = TOLERANCE) -> float:
    """Share of the reference points (m, d) that one of `own` (n, d) weakly dominates within `tolerance`.

    The tolerance is a share of the reference point's size, objective by objective.
    """
    limit = reference + tolerance * np.abs(reference)
    return float((own[:, None] <= limit[None]).all(axis=2).any(axis=0).mean())


def hypervolume(points: Values, corner: Values) -> float:
    """Volume that the points (n, d) dominate up to `corner` (d,); exact, by slicing.

    Between two neighbouring values of the last objective the section is that of all points up to there, so
    the volume is a sum of sections of one dimension less times lengths (the method of Zitzler 1999, without
    its shortcuts: fronts here have tens of points).
    """
    inside = points[(points < corner).all(axis=1)]
    if not len(inside):
        return 0.0
    if inside.shape[1] == 1:
        return float(corner[0] - inside.min())
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    ends = np.append(inside[1:, -1], corner[-1])
    return sum(
        hypervolume(inside[: k + 1, :-1], corner[:-1]) * float(end - inside[k, -1])
        for k, end in enumerate(ends)
        if end > inside[k, -1]
    )


def volume_ratio(own: Values, reference: Values) -> float:
    """Hypervolume of `own` over that of the reference front, both scaled to the extent of that front.

    The corner lies `MARGIN` of the extent beyond the front's worst value of each objective; an objective in
    which the front has no extent is measured in shares of its value.
    """
    low, high = reference.min(axis=0), reference.max(axis=0)
    extent = np.where(high > low, high - low, np.maximum(np.abs(high), 1e-300))
    corner = np.where(high > low, 1.0, 0.0) + MARGIN
    whole = hypervolume((reference - low) / extent, corner)
    return hypervolume((own - low) / extent, corner) / whole
