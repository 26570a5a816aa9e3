"""Accounts and history of a live run as the page draws them. Called in the session's thread."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ingest.core.units import GB
from service.session import several_jobs
from service.session.account_book import MINUTE_S, ChargeSums
from service.session.session import Session
from twin.estimation.training_cost import TrainingCost

Json = dict[str, Any]
RECENT_MINUTES = 10
"""Minutes over which measured rates are means."""
HOUR_S = 3600.0


def accounts(session: Session) -> Json:
    """Returns rates now, measured and expected, and sums of this month (UTC) and of the run."""
    book = session.accounts
    now = session.utc(session.world.now_ns)
    month = max(book.months, default=None)
    return {
        "at": now,
        "since": session.utc(0),
        "expected": _expected(session),
        "measured": _measured(session, now),
        "month": None if month is None else {"month": month, **_sums(session, book.months[month])},
        "run": _sums(session, book.total),
        **_of_run(session),
    }


def _expected(session: Session) -> Json | None:
    """Rates of the plans in force over the links as they are now, all jobs together; None without a plan that
    runs. A step time and utilisation are those of a job alone."""
    found = [one for job in session.world.active if (one := several_jobs.estimate(session, job)) is not None]
    if not found:
        return None
    alone = found[0] if len(found) == 1 else {"iteration_s": None, "utilisation": {}}
    added, mfu = _added(found), found[0]["cost"]["mfu"] if len(found) == 1 else None
    unpriced = list(dict.fromkeys(site for one in found for site in one["cost"]["gpus_without_price"]))
    return {
        "iteration_s": alone["iteration_s"], **added, "mfu": mfu, "gpus_without_price": unpriced,
        "usd_per_1e9_tokens": _per_billion(
            added["tokens_per_s"] * HOUR_S, added["gpu_usd_per_hour"], added["egress_usd_per_hour"]
        ),
        "utilisation": alone["utilisation"],
    }  # fmt: skip


def _per_billion(tokens: float, rent_usd: float, egress_usd: float) -> Json:
    """USD for 1e9 tokens in all and by part; None without tokens."""
    cost = TrainingCost(tokens, HOUR_S, rent_usd, egress_usd, 0.0, None, None)
    each = cost.per_billion_tokens()
    return {part: each[part] for part in ("total", "rent", "egress")}


def _added(found: list[Json]) -> Json:
    names = ("tokens_per_s", "egress_bytes_per_s", "egress_usd_per_hour", "gpu_usd_per_hour", "power_w")
    return {name: sum(one[name] for one in found) for name in names}


def _measured(session: Session, now: float) -> Json | None:
    """Rates over the last minutes, pauses included; None without steps."""
    first = now // MINUTE_S - RECENT_MINUTES
    recent = [sums for minute, sums in session.accounts.minutes.items() if minute > first]
    wall_s, iterations = _sum(recent, "wall_s"), _sum(recent, "iterations")
    if not iterations:
        return None
    if session.setup.jobs:  # their times overlap
        wall_s = min(RECENT_MINUTES * MINUTE_S, now - session.utc(0))
    busy = {k for sums in recent for k in sums.busy_s}
    return {
        "iteration_s": _sum(recent, "step_s") / iterations,
        "tokens_per_s": _sum(recent, "tokens") / wall_s,
        "egress_bytes_per_s": _sum(recent, "egress_bytes") / wall_s,
        "egress_usd_per_hour": _sum(recent, "egress_usd") / wall_s * HOUR_S,
        "gpu_usd_per_hour": _sum(recent, "gpu_usd") / wall_s * HOUR_S,
        "usd_per_1e9_tokens": _per_billion(
            _sum(recent, "tokens"), _sum(recent, "gpu_usd"), _sum(recent, "egress_usd")
        ),
        "power_w": _sum(recent, "energy_j") / wall_s,
        "utilisation": _named(session, {k: _busy_s(k, recent) / wall_s for k in busy}),
    }


def _of_run(session: Session) -> Json:
    kpis = session.state.figures.kpis()
    return {"mfu": kpis.mfu, "gpus_without_price": list(kpis.unpriced)}


def _sums(session: Session, sums: ChargeSums) -> Json:
    names, price = _names(session), session.setup.cluster.usd_per_gb
    return {
        "iterations": sums.iterations,
        "tokens": sums.tokens,
        "egress_bytes": sums.egress_bytes,
        "egress_usd": sums.egress_usd,
        "gpu_usd": sums.gpu_usd,
        "usd_per_1e9_tokens": _per_billion(sums.tokens, sums.gpu_usd, sums.egress_usd),
        "energy_j": sums.energy_j,
        "links": [
            {"src": names[i], "dst": names[j], "bytes": size, "usd": size / GB * price[i][j]}
            for (i, j), size in sorted(sums.sent.items())
        ],
    }


def series(session: Session, hours: float, points: int) -> Json:
    """Returns columns over the last `hours`, at most about `points` rows, each of some minutes with charges.

    `at` is the beginning of a row in epoch seconds; a step time without a step in the row is None. With them
    come the plans that were in force.
    """
    last = int(session.utc(session.world.now_ns)) // MINUTE_S
    kept = {k: one for k, one in session.accounts.minutes.items() if k > last - hours * 60}
    width = max(1, -(-(last - min(kept, default=last) + 1) // points))
    rows: dict[int, list[ChargeSums]] = {}
    for minute, sums in sorted(kept.items()):
        rows.setdefault(minute // width * width, []).append(sums)
    groups = list(rows.values())

    def column(figure: Callable[[list[ChargeSums]], float], below: str = "wall_s") -> list[float | None]:
        return [_rounded(figure(group), _sum(group, below)) for group in groups]

    return {
        "row_s": width * MINUTE_S,
        "at": [start * MINUTE_S for start in rows],
        "step_s": column(lambda group: _sum(group, "step_s"), "iterations"),
        "egress_bytes_per_s": column(lambda group: _sum(group, "egress_bytes")),
        "egress_usd_per_hour": column(lambda group: _sum(group, "egress_usd") * HOUR_S),
        "gpu_usd_per_hour": column(lambda group: _sum(group, "gpu_usd") * HOUR_S),
        "utilisation": {name: column(partial(_busy_s, k)) for k, name in enumerate(_names(session))},
        "plans": session.accounts.plans,
    }


def _sum(parts: Iterable[ChargeSums], name: str) -> float:
    return float(sum(getattr(part, name) for part in parts))


def _busy_s(domain: int, parts: Iterable[ChargeSums]) -> float:
    return sum(part.busy_s.get(domain, 0.0) for part in parts)


def _rounded(above: float, below: float) -> float | None:
    return float(f"{above / below:.5g}") if below else None


def _names(session: Session) -> list[str]:
    return [domain.name for domain in session.setup.cluster.domains]


def _named(session: Session, values: dict[int, float]) -> dict[str, float]:
    names = _names(session)
    return {names[k]: value for k, value in sorted(values.items())}
