"""Prints the comparison of `twin queue`: a row a scheduler, then what was done to the log."""

from typing import TYPE_CHECKING

from commands.show.console import Console

if TYPE_CHECKING:  # a command loads only what it needs
    from replay.queue.comparison import QueueComparison
    from replay.queue.on_nodes import NodeComparison
    from replay.queue.powered import PoweredComparison, PoweredResult
    from replay.queue.waiting import JobAudit
    from twin.power.accounts import Account
    from twin.queue.metrics import QueueFigures
    from twin.queue.node_metrics import NodeFigures
    from twin.queue.node_selection import NodeJobs
    from twin.queue.selection import LogJobs

COLUMNS = (
    "policy", "jobs", "wait s", "p95", "JCT s", "bounded slowdown", "p95", "60 s", "utilisation %",
    "Jain of users", "makespan h", "overtaking %",
)  # fmt: skip
NODE_COLUMNS = (
    "policy", "placement", "jobs", "wait s", "p95", "bounded slowdown", "p95", "utilisation %",
    "fragmentation %", "nodes a gang", "overtaking %",
)  # fmt: skip

POWER_COLUMNS = (
    "policy", "limits", "wait s", "p95", "bounded slowdown", "kWh", "mean kW", "peak kW", "rise in 30 s kW",
    "5 min", "15 min", "carbon kg", "cost USD", "deferred %",
)  # fmt: skip


def comparison(console: Console, found: "QueueComparison") -> None:
    """Prints the figures, the rows left out, and the notes."""
    log = found.log
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.processors:,} processors, prediction {found.prediction}"
    )
    console.table(title, COLUMNS, [_row(name, one) for name, one in found.figures.items()])
    _left_out(console, log)
    for name, run in found.runs.items():
        console.line(f"{name}: run {run}")


def on_nodes(console: Console, found: "NodeComparison") -> None:
    """Prints the figures of schedulers and placements, the rows left out, and the notes."""
    log = found.log
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.cluster.total_gpus:,} GPUs in "
        f"{len(log.cluster):,} nodes, prediction {found.prediction}"
    )
    rows = [_node_row(policy, place, one) for (policy, place), one in found.figures.items()]
    console.table(title, NODE_COLUMNS, rows)
    _left_out(console, log)


def with_power(console: Console, found: "PoweredComparison") -> None:
    """Prints figures of waiting and of power, the accounts, the rows left out, and the notes."""
    from twin.power.accounts import totals

    log, chosen = found.log, found.choices
    idle_w, busy_w = chosen.model.idle_mw / 1e3, (chosen.model.idle_mw + chosen.model.job_mw) / 1e3
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.processors:,} processors of {idle_w:g} to {busy_w:g} W "
        f"({chosen.model.name}), prediction {found.prediction}"
    )
    console.table(title, POWER_COLUMNS, [_power_row(one) for one in found.results])
    for one in found.results:
        if one.ledger:
            limits = ", limits kept" if one.limited else ""
            rows = [_account_row(account) for account in (*one.ledger, totals(one.ledger))]
            console.line()
            columns = (found.owner or "", "jobs", "GPU h", "energy kWh", "carbon g", "cost USD")
            console.table(f"ledger of {one.policy}{limits}", columns, rows)
    _left_out(console, log)


def _account_row(account: "Account") -> tuple[object, ...]:
    said = account.to_json()
    return (
        account.name,
        account.jobs,
        *(said[name] for name in ("gpu_h", "energy_kwh", "carbon_g", "cost_usd")),
    )


def _power_row(one: "PoweredResult") -> tuple[object, ...]:
    queue, power = one.queue, one.power
    return (
        one.policy, "kept" if one.limited else "", queue.avg_wait_s, queue.p95_wait_s,
        queue.avg_bounded_slowdown, power.energy_kwh, power.mean_kw, power.peak_kw,
        *(ramp.rise_w / 1e3 for ramp in power.ramps[1:]), power.carbon_kg, power.cost_usd,
        100 * power.deferred,
    )  # fmt: skip


def _left_out(console: Console, log: "LogJobs | NodeJobs") -> None:
    """Prints the rows left out, by reason, and the notes."""
    if log.rejects:
        console.line()
        console.line(f"{len(log.rejects):,} rows left out:")
        for reason, count in log.reasons.items():
            first = next(one for one in log.rejects if one.reason == reason)
            console.line(f"  {count:,}: {reason} (first: {log.name}:{first.row} {first.column} {first.raw})")
    for note in log.notes:
        console.line(f"note: {note}")


def job(console: Console, found: "JobAudit") -> None:
    """Prints why a job waited, when it would start, and what would start at once."""
    console.fields(f"job {found.job} of {found.run_id}, scheduler {found.policy}", _said(found))
    if found.holders:
        rows = [(one.name, one.processors, one.processor_s / 3600) for one in found.holders]
        console.table("who held processors meanwhile", ("user", "processors", "processor h"), rows)
    if found.overtaken_by:
        rows = [(one.name, one.processors, one.processor_s / 3600) for one in found.overtaken_by]
        title = f"came later, started earlier: {found.overtaken:,}"
        console.table(title, ("job", "processors", "processor h meanwhile"), rows)


def _said(found: "JobAudit") -> dict[str, str]:
    front = f"{found.in_front:,} jobs that ask for {found.in_front_processors:,} processors"
    first = f": {', '.join(found.first_in_front)}" if found.first_in_front else ""
    fields = {
        "user": found.user or "unknown",
        "asks for": f"{found.processors:,} processors, {found.estimate_s:,.0f} s",
        "submitted": f"{found.submitted_s:,.0f} s, {found.free_at_submission:,} processors free",
        "in front": front + first,
        "waited": f"{found.waited_s:,.0f} s",
        "of it": f"{found.busy_s:,.0f} s too few processors free, {found.held_back_s:,.0f} s enough, "
        "but others had a claim on them",
        "started": f"{found.started_s:,.0f} s{', before the head of the queue' if found.overtook else ''}",
        "set free by": ", ".join(found.released_by) or "nobody",
    }
    if found.forecast is not None:
        one = found.forecast
        fields[f"as known at {one.at_s:,.0f} s"] = (
            f"starts at {one.median_s:,.0f} s, 90 % between {one.low_s:,.0f} and {one.high_s:,.0f} s"
        )
        would = [f"{size:,} processors for up to {length / 60:,.0f} min" for size, length in found.fits_now]
        fields["would start at once"] = "; ".join(would) or "nothing"
    return fields


def _row(name: str, one: "QueueFigures") -> tuple[object, ...]:
    return (
        name, one.jobs, one.avg_wait_s, one.p95_wait_s, one.avg_jct_s, one.avg_bounded_slowdown,
        one.p95_bounded_slowdown, one.avg_bounded_slowdown_60s, 100 * one.utilisation, one.jain_users,
        one.makespan_s / 3600, 100 * one.backfilled,
    )  # fmt: skip


def _node_row(policy: str, place: str, one: "NodeFigures") -> tuple[object, ...]:
    pool, gang = one.of_pool, "" if one.nodes_per_gang is None else one.nodes_per_gang
    return (
        policy, place, pool.jobs, pool.avg_wait_s, pool.p95_wait_s, pool.avg_bounded_slowdown,
        pool.p95_bounded_slowdown, 100 * pool.utilisation, 100 * one.fragmentation, gang,
        100 * pool.backfilled,
    )  # fmt: skip
