"""Accounts and history of a live run as the page draws them. Called in the session's thread."""

from typing import Any

from service.session.account_book import MINUTE_S, StepSums
from service.session.session import Session

Json = dict[str, Any]
RECENT_MINUTES = 10
"""Minutes over which measured rates are means."""


def accounts(session: Session) -> Json:
    """Returns rates now, measured and expected, and sums of this month (UTC) and of the run."""
    book = session.accounts
    now = session.utc(session.world.now_ns)
    month = max(book.months, default=None)
    return {
        "at": now,
        "expected": _expected(session),
        "measured": _measured(session, now),
        "month": None if month is None else {"month": month, **_sums(session, book.months[month])},
        "run": _sums(session, book.total),
        "since": session.utc(0),
    }


def _expected(session: Session) -> Json | None:
    """Rates of the plan in force over the links as they are now; None without a plan, or if it stands."""
    world = session.world
    plan = world.orders.in_force
    if plan is None:
        return None
    links, slowdown = world.link_filter.forecast(world.now_ns).links(), world.glimpse_slowdown()
    estimate = session.context.estimator.iteration(plan, links, slowdown)
    if estimate.iter_s == float("inf"):
        return None
    hours = estimate.iter_s / 3600
    return {
        "iteration_s": estimate.iter_s,
        "tokens_per_s": session.context.estimator.tokens(plan) / estimate.iter_s,
        "egress_bytes_per_s": float(estimate.wan_bytes.sum()) / estimate.iter_s,
        "egress_usd_per_hour": estimate.usd / hours,
        "gpu_usd_per_hour": estimate.gpu_usd / hours,
        "utilisation": _named(session, estimate.utilisation_by_domain),
    }


def _measured(session: Session, now: float) -> Json | None:
    """Rates over the steps of the last minutes; None without steps."""
    first = now // MINUTE_S - RECENT_MINUTES
    recent = [account for minute, account in session.accounts.minutes.items() if minute > first]
    seconds = sum(one.seconds for one in recent)
    if not seconds:
        return None
    busy_s = {k: sum(one.busy_s.get(k, 0.0) for one in recent) for one in recent for k in one.busy_s}
    return {
        "iteration_s": seconds / sum(one.steps for one in recent),
        "tokens_per_s": sum(one.tokens for one in recent) / seconds,
        "egress_bytes_per_s": sum(one.egress_bytes for one in recent) / seconds,
        "egress_usd_per_hour": sum(one.egress_usd for one in recent) / seconds * 3600,
        "gpu_usd_per_hour": sum(one.gpu_usd for one in recent) / seconds * 3600,
        "utilisation": _named(session, {k: busy / seconds for k, busy in busy_s.items()}),
    }


def _sums(session: Session, account: StepSums) -> Json:
    names, price = _names(session), session.setup.cluster.usd_per_gb
    return {
        "steps": account.steps,
        "tokens": account.tokens,
        "egress_bytes": account.egress_bytes,
        "egress_usd": account.egress_usd,
        "gpu_usd": account.gpu_usd,
        "links": [
            {"src": names[i], "dst": names[j], "bytes": size, "usd": size / 1e9 * price[i][j]}
            for (i, j), size in sorted(account.sent.items())
        ],
    }


def series(session: Session, hours: float, points: int) -> Json:
    """Returns columns over the last `hours`, at most `points` rows, each the mean of some minutes with steps.

    `at` is the beginning of a row in epoch seconds. With them come the plans that were in force.
    """
    last = int(session.utc(session.world.now_ns)) // MINUTE_S
    kept = {k: one for k, one in session.accounts.minutes.items() if k > last - hours * 60}
    width = max(1, -(-(last - min(kept, default=last) + 1) // points))
    rows: dict[int, list[StepSums]] = {}
    for minute, account in sorted(kept.items()):
        rows.setdefault(minute // width * width, []).append(account)
    names, grouped = _names(session), [rows[start] for start in sorted(rows)]
    seconds = [sum(one.seconds for one in group) for group in grouped]
    return {
        "row_s": width * MINUTE_S,
        "at": [start * MINUTE_S for start in sorted(rows)],
        "step_s": _ratio(seconds, [sum(one.steps for one in group) for group in grouped]),
        "egress_bytes_per_s": _ratio([sum(one.egress_bytes for one in group) for group in grouped], seconds),
        "egress_usd_per_hour": _ratio([sum(one.egress_usd for one in g) * 3600 for g in grouped], seconds),
        "gpu_usd_per_hour": _ratio([sum(one.gpu_usd for one in g) * 3600 for g in grouped], seconds),
        "utilisation": {
            name: _ratio([sum(one.busy_s.get(k, 0.0) for one in group) for group in grouped], seconds)
            for k, name in enumerate(names)
        },
        "plans": session.accounts.plans,
    }


def _ratio(above: list[Any], below: list[Any]) -> list[float]:
    return [float(f"{a / b:.5g}") for a, b in zip(above, below, strict=True)]


def _names(session: Session) -> list[str]:
    return [domain.name for domain in session.setup.cluster.domains]


def _named(session: Session, values: dict[int, float]) -> dict[str, float]:
    names = _names(session)
    return {names[k]: value for k, value in sorted(values.items())}
