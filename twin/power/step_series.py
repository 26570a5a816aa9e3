"""A quantity that is constant between instants, in integers, so that its integrals are exact."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
PJ_PER_J = 10**12
"""Picojoules in a joule; a milliwatt for a nanosecond is one picojoule."""


@dataclass(frozen=True, eq=False)
class StepSeries:
    """`value[i]` holds from `at_ns[i]` to the next instant, the last one to `end_ns`; arrays are (n,)."""

    at_ns: Int
    value: Int
    end_ns: int

    def __post_init__(self) -> None:
        assert len(self.at_ns) == len(self.value) > 0, "one value an instant, and at least one"
        assert (np.diff(self.at_ns) > 0).all() and self.at_ns[-1] <= self.end_ns, "instants in their order"

    @classmethod
    def of_changes(cls, times_ns: Int, changes: Int, begin_ns: int, end_ns: int) -> Self:
        """Returns the running sum of changes, from 0; changes of one instant are one step."""
        at, place = np.unique(np.append(times_ns, begin_ns), return_inverse=True)
        net = np.zeros(len(at), np.int64)
        np.add.at(net, place[:-1], changes)
        value = np.cumsum(net)
        inside = at < end_ns
        if not inside.any():
            return cls(np.array([begin_ns], np.int64), np.zeros(1, np.int64), end_ns)
        kept = np.flatnonzero(inside & np.append(True, np.diff(value) != 0))
        return cls(at[kept], value[kept], end_ns)

    @property
    def begin_ns(self) -> int:
        """The first instant."""
        return int(self.at_ns[0])

    @property
    def durations_ns(self) -> Int:
        """Nanoseconds that each value holds (n,)."""
        return np.diff(np.append(self.at_ns, self.end_ns))

    @cached_property
    def integral(self) -> int:
        """Value x nanoseconds over all of it, exact."""
        return int((self.value.astype(object) * self.durations_ns.astype(object)).sum())

    @cached_property
    def _before(self) -> NDArray[Any]:
        """Integral up to each instant (n,), exact integers."""
        each = self.value.astype(object) * self.durations_ns.astype(object)
        return np.append(np.array([0], object), np.cumsum(each)[:-1])

    def at(self, times_ns: Int) -> Int:
        """Returns the value at each time (m,); before the first instant that of the first."""
        found: Int = self.value[self._place(times_ns)]
        return found

    def up_to(self, times_ns: Int) -> NDArray[Any]:
        """Returns the integral from the beginning to each time (m,), exact integers as objects.

        Beyond the ends the first and the last value go on.
        """
        place = self._place(times_ns)
        since = np.asarray(times_ns).astype(object) - self.at_ns[place].astype(object)
        found: NDArray[Any] = self._before[place] + self.value[place].astype(object) * since
        return found

    def between(self, begins_ns: Int, ends_ns: Int) -> NDArray[Any]:
        """Returns the integral over each interval (m,), exact integers as objects."""
        found: NDArray[Any] = self.up_to(ends_ns) - self.up_to(begins_ns)
        return found

    def times(self, other: "StepSeries") -> int:
        """Returns the integral of the product over the time of this one, exact; `other` covers it."""
        inside = other.at_ns[(other.at_ns > self.begin_ns) & (other.at_ns < self.end_ns)]
        at = np.union1d(self.at_ns, inside)
        lasts = np.diff(np.append(at, self.end_ns)).astype(object)
        return int((self.at(at).astype(object) * other.at(at).astype(object) * lasts).sum())

    def mapped(self, value: Int) -> Self:
        """Returns the series with other values at the same instants."""
        return type(self)(self.at_ns, value, self.end_ns)

    def _place(self, times_ns: Int) -> NDArray[np.intp]:
        return np.maximum(np.searchsorted(self.at_ns, times_ns, side="right") - 1, 0)
