"""Numbers, times, plans and domain names as the page and its charts write them."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from replay.log.events import Json

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


def named(text: str, domains: Sequence[str]) -> str:
    """A text of the log with the domains' names for their numbers (d0, ...) and plans as in `plan_line`."""
    text = re.sub(r"\bd(\d+)\b", lambda m: domains[int(m[1])] if int(m[1]) < len(domains) else m[0], text)
    text = re.sub(r":(\d+)L\(tp(\d+),pp(\d+)\)(?: >)?", r" \1 (tp \2, pp \3) →", text)
    text = re.sub(r" → \|", " |", text)
    return re.sub(
        r"(?: →)? dp(\d+) mbs(\d+) m(\d+) (\S+(?: v\d+)?)/(\w+)",
        lambda m: f" · dp {m[1]} · {m[3]} x {m[2]}{_schedule(m[4], m[5])}",
        text,
    )


def _schedule(schedule: str, p2p: str) -> str:
    return "" if (schedule, p2p) == ("1f1b", "blocking") else f" · {schedule}, {p2p}"


def plan_line(plan: Json, domains: Sequence[str]) -> str:
    """A plan in one line: domain, layers and inner split in pipeline order; schedule, extra warm-up, routes
    and local SGD only where they are not 1F1B, blocking, none, direct and none."""
    sync = plan.get("sync")
    shares = (" → " if sync is None else " | ").join(
        f"{domains[s['domain']]} {s['layers']} (tp {s['tp']}, pp {s['pp']})" for s in plan["shares"]
    )
    chunks = f" x {plan['chunks']}" if plan.get("chunks", 1) > 1 else ""
    parts = [f"{shares} · dp {plan['dp']} · {plan['micro_batches']} x {plan['micro_batch']}"]
    parts[0] += _schedule(f"{plan['schedule']}{chunks}", plan["p2p"])
    if plan.get("extra_warmup", 0):
        parts.append(f"warm-up +{plan['extra_warmup']}")
    if sync is not None:
        parts.append(f"replicas, equal after every {sync['inner_steps']}")
    parts += ["via " + "-".join(domains[k] for k in route) for route in plan.get("routes", ())]
    return " · ".join(parts)
