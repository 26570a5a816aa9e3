"""Prints the comparison of `twin queue`: a row a scheduler, then what was done to the log."""

from typing import TYPE_CHECKING

from commands.show.console import Console, cell

if TYPE_CHECKING:  # a command loads only what it needs
    from replay.logqueue.comparison import QueueComparison, QueueIntervals
    from replay.logqueue.on_nodes import NodeComparison
    from replay.logqueue.powered import PoweredComparison, PoweredResult
    from replay.logqueue.waiting import JobAudit
    from replay.logqueue.whatif import QueueWhatIf
    from replay.logqueue.windowed import Ranged
    from replay.queueing.bench import QueueBench
    from replay.queueing.capacity import CapacityAnswer
    from replay.queueing.changing import ChangingComparison
    from replay.queueing.on_sites import SiteComparison
    from replay.queueing.scenario_run import Compared
    from twin.nodes.metrics import NodeFigures
    from twin.nodes.selection import NodeJobs
    from twin.power.accounts import Account
    from twin.queue.metrics import QueueFigures
    from twin.workload.selection import LogJobs

COLUMNS = (
    "policy", "jobs", "wait s", "p95", "JCT s", "bounded slowdown", "95 % interval", "p95", "60 s",
    "utilisation %", "Jain of users", "unfair %", "makespan h", "overtaking %",
)  # fmt: skip
NODE_COLUMNS = (
    "policy", "placement", "jobs", "wait s", "p95", "bounded slowdown", "p95", "utilisation %",
    "fragmentation %", "nodes a gang", "racks a gang", "overtaking %",
)  # fmt: skip

OUTAGE_COLUMNS = ("restarts", "most of a job", "lost GPU h", "availability %")
"""Beside those of nodes, where there are outages."""

POWER_COLUMNS = (
    "policy", "limits", "wait s", "p95", "bounded slowdown", "kWh", "mean kW", "peak kW", "rise in 30 s kW",
    "5 min", "15 min", "carbon kg", "cost USD", "deferred %",
)  # fmt: skip
CHANGING_COLUMNS = (
    "policy", "jobs", "JCT h", "p95", "wait h", "bounded slowdown", "makespan h", "utilisation %",
    "unfair %", "deadlines met %", "preemptions", "most of a job", "changes", "lost GPU h",
)  # fmt: skip
CHANGING_FAULT_COLUMNS = (
    "restarts", "most of a job", "shrunk", "left slow nodes", "lost work GPU h", "stalled GPU h",
    "availability %",
)  # fmt: skip

SITE_COLUMNS = (
    "policy", "jobs", "wait s", "p95", "bounded slowdown", "utilisation %", "egress USD", "moved GB",
    "data moved %", "spanning %", "held / recorded",
)  # fmt: skip


def comparison(console: Console, found: "QueueComparison") -> None:
    """Prints the figures, the rows left out, and the notes."""
    log = found.log
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.processors:,} processors, prediction {found.prediction}"
    )
    rows = [_row(name, one, found.intervals.get(name)) for name, one in found.figures.items()]
    console.table(title, COLUMNS, rows)
    _left_out(console, log)
    for name, run in found.runs.items():
        console.line(f"{name}: run {run}")


def changing(console: Console, found: "ChangingComparison") -> None:
    """Prints the figures of schedulers that change running jobs, the rows left out, and the notes."""
    rows = [
        (
            name, one.jobs - one.refused, one.avg_jct_s / 3600, one.p95_jct_s / 3600, one.avg_wait_s / 3600,
            one.avg_bounded_slowdown, one.makespan_s / 3600, 100 * one.utilisation,
            100 * one.unfair_jobs, "" if one.deadlines_met is None else 100 * one.deadlines_met,
            one.preemptions, one.most_preemptions, one.changes, one.lost_gpu_h,
            *((
                one.restarts, one.most_restarts, one.shrinks, one.evictions, one.lost_work_gpu_h,
                one.stalled_gpu_h, 100 * one.availability,
            ) if found.outages.any else ()),
        )
        for name, one in found.figures.items()
    ]  # fmt: skip
    log, world = found.log, found.world
    where = f"{world.gpus:,} GPUs" + ("" if world.nodes == 1 else f" in {world.nodes:,} nodes")
    title = f"{log.name}: {len(log.jobs):,} jobs on {where}, changes {world.rules.name}"
    columns = (*CHANGING_COLUMNS, *(CHANGING_FAULT_COLUMNS if found.outages.any else ()))
    console.table(f"{title}, prediction {found.prediction}", columns, rows)
    _left_out(console, log)


def compared(console: Console, found: "Compared") -> None:
    """Prints the comparison of a scenario, on a pool or on nodes."""
    from replay.logqueue.on_nodes import NodeComparison  # loaded by then
    from replay.queueing.on_sites import SiteComparison

    if isinstance(found, NodeComparison):
        on_nodes(console, found)
    elif isinstance(found, SiteComparison):
        on_sites(console, found)
    else:
        comparison(console, found)


def on_sites(console: Console, found: "SiteComparison") -> None:
    """Prints the figures of schedulers over sites, the rows left out, and the notes."""
    world, log = found.inputs.world, found.log
    sites = ", ".join(f"{name} {gpus}" for name, gpus in zip(world.names, world.gpus.tolist(), strict=True))
    title = f"{log.name}: {len(log.jobs):,} jobs over {sites} GPUs, placement {found.placement}"
    rows = [
        (
            name, one.of_pool.jobs, one.of_pool.avg_wait_s, one.of_pool.p95_wait_s,
            one.avg_bounded_slowdown_recorded, 100 * one.of_pool.utilisation, one.egress_usd, one.moved_gb,
            100 * one.moved_jobs, 100 * one.spanning_jobs, one.stretch,
        )
        for name, one in found.figures.items()
    ]  # fmt: skip
    console.table(title, SITE_COLUMNS, rows)
    _left_out(console, log)
    for name, run in found.runs.items():
        console.line(f"{name}: run {run}")


def what_if(console: Console, found: "QueueWhatIf") -> None:
    """Prints two schedules of the same jobs."""
    console.line(f"{found.base_run} ({found.base_policy}) beside {found.run_id} ({found.policy})")
    if found.first_job is None:
        console.line("every job starts at the same time")
    else:
        console.line(
            f"{found.starts_differ:,} of {found.jobs:,} jobs start at another time; "
            f"the first is job {found.first_job}, at {found.first_s:,.0f} s"
        )
    rows = [
        (name.replace("_", " "), cell(found.base[name]), cell(value), cell(found.differences[name]))
        for name, value in found.other.items()
        if name in found.differences
    ]
    console.table("", ("figure", found.base_policy, found.policy, "difference"), rows)
    if found.slowdown_ratio is not None:
        one = found.slowdown_ratio
        console.line(f"bounded slowdown of {found.policy} over that of {found.base_policy}: {one.said()}")


def capacity(console: Console, found: "CapacityAnswer") -> None:
    """Prints the least machine for each scheduler, and what was tried."""
    target = found.target
    rows = [
        (
            one.policy, one.gpus, "" if one.nodes is None else one.nodes, getattr(one.figures, target.figure),
            next((value for size, value, met in reversed(one.tried) if size < one.gpus), ""),
            100 * one.figures.utilisation, len(one.tried),
        )
        for one in found.answers
    ]  # fmt: skip
    title = f"{found.log.name}: {len(found.log.jobs):,} jobs, {target.figure} at most {target.most:,.6g}"
    columns = ("policy", "GPUs", "nodes", target.figure, "next less tried", "utilisation %", "sizes tried")
    console.table(title, columns, rows)
    for one in found.answers:
        if not one.monotone:
            console.line(f"note: {one.policy}: a larger machine misses the target; more is not always better")
    _left_out(console, found.log)


BENCH_COLUMNS = (
    "scenario", "load", "policy", "worlds", "jobs", "wait s", "95 % interval", "p95 s", "bounded slowdown",
    "95 % interval", "x first", "95 % interval", "utilisation %",
)  # fmt: skip


def bench(console: Console, found: "QueueBench") -> None:
    """Prints schedulers over scenarios and loads."""
    rows = [
        (
            one.scenario, f"{one.load:g}", one.policy, one.worlds, one.jobs, one.avg_wait_s,
            _interval(one.wait_interval), one.p95_wait_s, one.avg_bounded_slowdown,
            _interval(one.slowdown_interval), "" if one.over_first is None else one.over_first.value,
            _interval(one.over_first), 100 * one.utilisation,
        )
        for one in found.rows
    ]  # fmt: skip
    console.table("x first: bounded slowdown over that of the first policy", BENCH_COLUMNS, rows)
    console.line(
        "no schedule is kept as a run here: `twin replay --scenario NAME` with the same -p keeps each of them"
    )
    for note in found.notes:
        console.line(f"note: {note}")


def _interval(one: "Ranged | None") -> str:
    return "" if one is None or one.low == one.high else f"{one.low:,.4g} to {one.high:,.4g}"


def on_nodes(console: Console, found: "NodeComparison") -> None:
    """Prints the figures of schedulers and placements, the rows left out, and the notes."""
    log = found.log
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.cluster.total_gpus:,} GPUs in "
        f"{len(log.cluster):,} nodes, prediction {found.prediction}"
    )
    rows = [_node_row(policy, place, one) for (policy, place), one in found.figures.items()]
    columns: tuple[str, ...] = NODE_COLUMNS
    if found.outages.any:
        columns = (*columns, *OUTAGE_COLUMNS)
        rows = [(*row, *_outage_cells(one)) for row, one in zip(rows, found.figures.values(), strict=True)]
    console.table(title, columns, rows)
    _left_out(console, log)
    for (policy, place), run in found.runs.items():
        console.line(f"{policy}, {place}: run {run}")


def with_power(console: Console, found: "PoweredComparison") -> None:
    """Prints figures of waiting and of power, the accounts, the rows left out, and the notes."""
    from twin.power.accounts import totals

    log, chosen = found.log, found.choices
    idle_w, busy_w = chosen.model.idle_mw / 1e3, (chosen.model.idle_mw + chosen.model.job_mw) / 1e3
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.processors:,} processors of {idle_w:g} to {busy_w:g} W "
        f"({chosen.model.name}), prediction {found.prediction}"
    )
    if found.sleep is None:
        console.table(title, POWER_COLUMNS, [_power_row(one) for one in found.results])
    else:
        rows = [(*_power_row(one), *_sleep_cells(one)) for one in found.results]
        console.table(title, (*POWER_COLUMNS, "asleep GPU h", "wakes", "wake s"), rows)
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


def _sleep_cells(one: "PoweredResult") -> tuple[object, ...]:
    slept = one.slept
    return () if slept is None else (slept.gpu_h, slept.wakes, slept.avg_wake_s)


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
    if found.ended_runs:
        times = (
            (one.node, one.started_s, one.ended_s, one.kept_s, one.lost_s, one.waited_s)
            for one in found.ended_runs
        )
        columns = ("node", "started s", "ended s", "kept s", "lost s", "then waited s")
        console.table("runs that a fault of a node ended", columns, list(times))
    if found.out_nodes:
        outages = [(one.node, one.kind, one.down_s, one.up_s) for one in found.out_nodes]
        title = f"nodes that were out meanwhile: {found.outages:,} outages"
        console.table(title, ("node", "kind", "from s", "to s"), outages)


def _said(found: "JobAudit") -> dict[str, str]:
    front = f"{found.in_front:,} jobs that ask for {found.in_front_processors:,} {found.unit}"
    first = f": {', '.join(found.first_in_front)}" if found.first_in_front else ""
    outages = f"{found.out_s:,.0f} s nodes that were out had the rest, " if found.outages else ""
    fields = {
        "user": found.user or "unknown",
        "asks for": f"{found.processors:,} {found.unit}, {found.estimate_s:,.0f} s",
        "submitted": f"{found.submitted_s:,.0f} s, {found.free_at_submission:,} {found.unit} free",
        **({} if found.follows is None else {"dependency": _dependency(found)}),
        "in front": front + first,
        "waited": f"{found.waited_s:,.0f} s",
        "of it": f"{found.busy_s:,.0f} s too few {found.unit} free, {outages}{found.held_back_s:,.0f} s "
        "enough, but others had a claim on them",
        "started": f"{found.started_s:,.0f} s{', before the head of the queue' if found.overtook else ''}",
        "set free by": ", ".join(found.released_by) or "nobody",
    }
    if found.ended_runs:
        lost_s = sum(one.lost_s for one in found.ended_runs)
        times = "once" if len(found.ended_runs) == 1 else f"{len(found.ended_runs):,} times"
        fields["ended by faults"] = f"{times}, {lost_s:,.0f} s of work lost"
    if found.forecast is not None:
        one = found.forecast
        fields[f"as known at {one.at_s:,.0f} s"] = (
            f"starts at {one.median_s:,.0f} s, 90 % between {one.low_s:,.0f} and {one.high_s:,.0f} s"
        )
        would = [f"{size:,} processors for up to {length / 60:,.0f} min" for size, length in found.fits_now]
        fields["would start at once"] = "; ".join(would) or "nothing"
    return fields


def _dependency(found: "JobAudit") -> str:
    return f"submitted {found.think_s:,.0f} s after the end of job {found.follows}"


def _row(name: str, one: "QueueFigures", sure: "QueueIntervals | None") -> tuple[object, ...]:
    return (
        name, one.jobs, one.avg_wait_s, one.p95_wait_s, one.avg_jct_s, one.avg_bounded_slowdown,
        _interval(None if sure is None else sure.slowdown),
        one.p95_bounded_slowdown, one.avg_bounded_slowdown_60s, 100 * one.utilisation, one.jain_users,
        100 * one.unfair_jobs, one.makespan_s / 3600, 100 * one.backfilled,
    )  # fmt: skip


def _outage_cells(one: "NodeFigures") -> tuple[object, ...]:
    return one.restarts, one.most_restarts, one.lost_gpu_s / 3600, 100 * one.availability


def _node_row(policy: str, place: str, one: "NodeFigures") -> tuple[object, ...]:
    pool = one.of_pool
    gangs = ("" if mean is None else mean for mean in (one.nodes_per_gang, one.racks_per_gang))
    return (
        policy, place, pool.jobs, pool.avg_wait_s, pool.p95_wait_s, pool.avg_bounded_slowdown,
        pool.p95_bounded_slowdown, 100 * pool.utilisation, 100 * one.fragmentation, *gangs,
        100 * pool.backfilled,
    )  # fmt: skip
