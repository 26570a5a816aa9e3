"""Figures as text for tables; a dash for a missing one."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only named here: texts load nothing heavy
    from replay.metrics.kpis import Kpis

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
    """Returns USD per billion tokens from USD per token."""
    return "-" if usd is None else f"{1e9 * usd:,.0f}"


def rate(tokens_per_s: float | None) -> str:
    """Returns tokens per second."""
    return "-" if tokens_per_s is None else f"{tokens_per_s:,.0f}"


def total_per_billion(usd: float | None, *, partial: bool) -> str:
    """Returns USD per billion tokens in all; `partial`: the rent of some GPUs is not known."""
    return at_least(None if usd is None else 1e9 * usd, partial=partial)


def at_least(usd: float | None, *, partial: bool = False) -> str:
    """Returns whole USD; `partial`: a part is not known, so it is a lower limit."""
    return "-" if usd is None else f"{'>= ' if partial else ''}{usd:,.0f}"


def cost_parts(kpis: "Kpis") -> str:
    """Returns USD per billion tokens of a run in all, and its parts."""
    total = total_per_billion(kpis.total_usd_per_token, partial=bool(kpis.unpriced))
    rent, egress = per_billion(kpis.rent_usd_per_token), per_billion(kpis.usd_per_token)
    return f"{total}: GPU rent {rent}, egress {egress}"


def unpriced_text(sites: Sequence[str]) -> str:
    """Returns a sentence that says whose rent is not in the totals; empty where all is known."""
    if not sites:
        return ""
    return (
        f"the rent of the GPUs in {', '.join(sites)} is not known and not in the totals: set usd_per_gpu_hour"
    )


def unpriced_notes(found: Iterable["Kpis"]) -> list[str]:
    """Returns a note where the rent of GPUs is not known and totals leave it out."""
    text = unpriced_text(list(dict.fromkeys(site for kpis in found for site in kpis.unpriced)))
    return [text] if text else []


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
