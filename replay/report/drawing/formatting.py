"""Numbers, times, plans and domain names as the page and its charts write them."""

import math
from datetime import UTC, datetime

NONE = "–"


def time_unit(seconds: float) -> tuple[float, str]:
    """Returns (seconds in the unit, its name) for an axis of this length."""
    for scale, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * scale:
            return scale, name
    return 1.0, "seconds"


def date(epoch_s: float, *, seconds: bool = False) -> str:
    """A moment in UTC, to the minute or the second: 2021-08-12 14:30."""
    when = datetime.fromtimestamp(round(epoch_s), UTC)
    return f"{when:%Y-%m-%d %H:%M:%S}" if seconds else f"{when:%Y-%m-%d %H:%M}"


def number(value: float) -> str:
    """Three digits and a metric prefix: 1.25 M, 830, 0.04."""
    for factor, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.3g}"


def size(count: float) -> str:
    """A number of bytes: 23.1 TB, 0 B."""
    text = number(count)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def percent(share: float | None, digits: int = 1, sign: str = "") -> str:
    """A share in per cent, with a narrow no-break space; a dash for None. `sign` "+" marks gains too."""
    return NONE if share is None else f"{100 * share:{sign}z.{digits}f}\u202f%"


def plain(value: float, digits: int = 4, sign: str = "") -> str:
    """A number without exponent: `digits` significant digits, and all digits before the point."""
    if abs(value) >= 10.0 ** (digits - 1):
        return f"{value:{sign},.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:{sign}z,.{min(decimals, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value: float | None, factor: float = 1.0, unit: str = "", digits: int = 4) -> str:
    """`value` times `factor`, in `unit`; a dash for None."""
    return NONE if value is None else plain(value * factor, digits) + unit
