"""Figures as people read them in a table; a dash for what there is none of."""

from collections.abc import Sequence

GAP = 2
"""Spaces between two columns."""


def percent(share: float | None) -> str:
    """A share as people read it."""
    return "-" if share is None else f"{100 * share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    """A latency in milliseconds."""
    return "-" if seconds is None else f"{1e3 * seconds:,.2f}"


def per_token(seconds: float | None) -> str:
    """Time per token in microseconds."""
    return "-" if seconds is None else f"{1e6 * seconds:.2f}"


def per_billion(usd: float | None) -> str:
    """Egress in USD per billion tokens."""
    return "-" if usd is None else f"{1e9 * usd:,.0f}"


def made_up(dataset: str, note: str) -> bool:
    """Whether links are made up rather than measured, by the data set's name or by how they became links."""
    return "synthetic" in dataset or "synthetic" in note.lower()


def counted(count: int, what: str) -> str:
    """1 finding, 2 findings."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Columns by number, in as few tables of at most `room` letters as they need; each has the keys first."""
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
