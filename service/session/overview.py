"""The whole state of a live run, and what is kept of its past, as JSON for pages and programs.

Called in the session's thread, by `Session.ask`; nothing changes by it.
"""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from service.session import several_jobs
from service.session.live_state import CHARGES
from service.session.session import Session
from twin.core.view import Forecast

Json = dict[str, Any]


def state(session: Session) -> Json:
    """Returns the whole state for a page."""
    world, published = session.world, session.published
    forecast = world.link_filter.forecast(world.now_ns)
    return {
        "run": session.run_id,
        "scenario": session.setup.scenario.name,
        "policy": session.header.policy,
        "at": session.utc(world.now_ns),
        "mode": published.mode,
        "synthetic": list(session.settings.synthetic),
        "problem": session.problem or session.clock_watch.problem,
        "plan": published.plan,
        "virtual": published.virtual,
        "order": published.order,
        "obstacle": published.obstacle,
        "decisions": published.decisions,
        "next_period_s": round(session.next_period_s(), 3),
        "listed": [one.name for one in session.setup.jobs],
        "jobs": several_jobs.lines(session),
        "domains": _domains(session),
        "horizons_s": forecast.horizons_s.tolist(),
        "links": _links(session, forecast),
        "job": {"model": session.setup.scenario.model, **several_jobs.steps(session, "")},
        "accounts": _accounts(session),
    }


def _domains(session: Session) -> list[Json]:
    world = session.world
    nominal = np.ones(session.setup.cluster.size)
    seen = [world.glimpse_slowdown(job.name) for job in world.active] or [nominal]
    factors = np.max(seen, axis=0).tolist()
    held: dict[int, int] = {}
    for job in world.active:
        for share in () if job.orders.in_force is None else job.orders.in_force.shares:
            held[share.domain] = held.get(share.domain, 0) + len(share.gpus)
    return [
        {"name": domain.name, "gpu": domain.gpu.name, "gpus": domain.gpus, "alive": world.free_gpus[k],
         "held": held.get(k, 0), "slowdown": factors[k], "usd_per_gpu_hour": domain.usd_per_gpu_hour}
        for k, domain in enumerate(session.setup.cluster.domains)
    ]  # fmt: skip


def _links(session: Session, forecast: Forecast) -> list[Json]:
    """Each directed link: last sample, filtered state, forecasts with their 80 % and 95 % intervals."""
    size = session.setup.cluster.size
    return [_link(session, forecast, i, j) for i in range(size) for j in range(size) if i != j]


def _link(session: Session, forecast: Forecast, i: int, j: int) -> Json:
    cluster, kept = session.setup.cluster, session.state.links.get((i, j))
    middle, sd = forecast.bandwidth_bps[:, i, j], forecast.sd_log[:, i, j]
    widths = np.broadcast_to(forecast.widths, (len(middle), 2))
    bands = {
        f"{side}{share}_bps": (middle * np.exp(sign * widths[:, n] * sd)).tolist()
        for n, share in enumerate((80, 95))
        for side, sign in (("low", -1), ("high", 1))
    }
    return {
        "src": cluster.domains[i].name,
        "dst": cluster.domains[j].name,
        "last": _sample(session, *kept[-1]) if kept else None,
        "forecast_bps": middle.tolist(),
        **bands,
        "latency_s": float(forecast.latency_s[i, j]),
        "nis": float(session.world.link_filter.nis[i, j]),
        "dead": bool(middle[0] <= 0),
        "usd_per_gb": cluster.usd_per_gb[i][j],
    }


def _sample(session: Session, sampled_ns: int, bandwidth_bps: float, latency_s: float) -> Json:
    return {"at": session.utc(sampled_ns), "bandwidth_bps": bandwidth_bps, "latency_s": latency_s}


ACCOUNTS = (
    "tokens", "iterations", "mean_iteration_s", "utilisation", "egress_usd", "gpu_usd", "energy_j",
    "wan_bytes", "moved_bytes", "moves", "turns", "paused_s", "lost_s", "decision_p50_s", "decision_p99_s",
    "late", "tokens_per_s", "mfu", "total_usd", "total_usd_per_token", "rent_usd_per_token", "unpriced",
)  # fmt: skip


def _accounts(session: Session) -> Json:
    """Sums since the run began, as far as the job said what it runs; and of this month (UTC)."""
    figures, hours = session.state.figures.kpis().to_json(), session.state.hours
    now = datetime.fromtimestamp(session.utc(session.world.now_ns), UTC)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = [sums for hour, sums in hours.items() if hour >= first.timestamp() // 3600]
    this_month = {name: sum(sums[name] for sums in month) for name in CHARGES}
    return {**{name: figures[name] for name in ACCOUNTS}, "this_month": this_month}


def history(
    session: Session, what: str, since: float, limit: int, link: tuple[int, int] | None
) -> list[Json]:
    """Returns what is kept at hand of a kind, the newest last, from `since` (epoch seconds) on."""
    kept, found = session.state, list[Json]()
    match what:
        case "decisions":
            found = list(kept.decisions)
        case "events":
            found = list(kept.happened)
        case "steps":
            found = [
                {"at": kept.utc(ns), **({"job": job} if job else {}), "step": number, "seconds": s}
                for job, steps in kept.steps.items() for ns, number, s in steps
            ]  # fmt: skip
            found.sort(key=lambda row: row["at"])
        case "costs":
            found = [{"at": hour * 3600.0, **sums} for hour, sums in sorted(kept.hours.items())]
        case "links":
            names = kept.domains
            found = [
                {"src": names[i], "dst": names[j], **_sample(session, ns, bps, latency)}
                for (i, j), samples in kept.links.items() if link in (None, (i, j))
                for ns, bps, latency in samples
            ]  # fmt: skip
            found.sort(key=lambda row: row["at"])
    return [row for row in found if row["at"] >= since][-limit:]
