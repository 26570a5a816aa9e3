"""Figures as text for tables; a dash for a missing one."""

from collections.abc import Sequence

GAP = 2
"""Spaces between two columns."""


def percent(share: float | None) -> str:
    """Returns a share in percent."""
    return "-" if share is None else f"{100 * share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    """Returns a latency in milliseconds."""
    return "-" if seconds is None else f"{1e3 * seconds:,.2f}"


def per_token(seconds: float | None) -> str:
    """Returns time per token in microseconds."""
    return "-" if seconds is None else f"{1e6 * seconds:.2f}"


def per_billion(usd: float | None) -> str:
    """Returns egress in USD per billion tokens."""
    return "-" if usd is None else f"{1e9 * usd:,.0f}"


def duration(seconds: float) -> str:
    """Returns a time in the unit that a reader can picture: 45 s, 12.5 min, 1.86 h."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:,.4g} h"


def is_synthetic(dataset: str, note: str) -> bool:
    """True if links are synthetic, by the name of the data set or the modelling note."""
    return "synthetic" in dataset or "synthetic" in note.lower()


def counted(count: int, what: str) -> str:
    """Returns a number with its noun: 1 finding, 2 findings."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Splits columns (by number) into few tables of at most `room` letters, keys first in each."""
    first = list(range(keys))
    begun = sum(widths[:keys]) + GAP * (keys - 1)
    found, used = [list(first)], begun
    for index in range(keys, len(widths)):
        wide = widths[index] + GAP
        if used + wide > room and len(found[-1]) > keys:
            found.append(list(first))
            used = begun
        found[-1].append(index)
        used += wide
    return found
