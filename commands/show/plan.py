"""Prints the answer of `twin plan`: a table of plans, then what each of them is."""

from typing import TYPE_CHECKING

from commands.show.console import Console
from ingest.core.units import GIB
from replay.metrics.formatting import at_least, percent, unpriced_text
from twin.core.plan_text import link_text, plan_text

if TYPE_CHECKING:  # a command loads only what it needs
    from replay.export.writing import Export
    from replay.planning.answer import PlanAnswer
    from replay.planning.figures import PlanFigures
    from replay.planning.turning_points import TurningPoint
    from replay.tracking.contract import TrackedFiles

GIGA = 1e9
COLUMNS = (
    "plan", "p10 tok/s", "p50", "p90", "mean", "iter s", "compute", "comm", "bubble", "free GiB",
    "MFU", "USD/1e9 tok", "of it rent", "egress", "egress USD/day", "GPU USD/day", "kWh/day",
    "limited by: time saved without it", "binding link: twice as wide",
)  # fmt: skip


FRONT = ("busy %",)
"""Further column of a front of time, utilisation and cost."""
TRAINING = ("plan", "days", "p10 days", "p90 days", "USD", "of it rent", "egress", "kWh")


def answer(console: Console, found: "PlanAnswer", *, front: bool = False) -> None:
    """Prints the plans, those beside them, what would change the answer, and the modelling steps."""
    names = found.record.scenario.domains
    listed = [(str(n), one) for n, one in enumerate(found.plans, 1)]
    listed += [(name, one) for name, one in found.beside.items() if not isinstance(one, str)]
    title = f"{found.record.scenario.name}: {found.record.hours:.1f} h of {found.record.dataset}"
    columns = (COLUMNS[0], *FRONT, *COLUMNS[1:]) if front else COLUMNS
    console.table(title, columns, [_row(label, one, names, front) for label, one in listed])
    console.line()
    if found.tokens is not None:
        rows = [_training(label, one, found.tokens) for label, one in listed]
        console.table(f"training {found.tokens:,.0f} tokens", TRAINING, rows)
        console.line()
    for label, one in listed:
        console.line(f"{label}: {plan_text(one.plan, names)} (found by {one.found_by})")
    for name, why in found.beside.items():
        if isinstance(why, str):
            console.line(f"{name}: none; {why}")
    for change in found.changes:
        console.line(_changed(change, names))
    if not found.changes:
        console.line(
            "no bandwidth of its links within a factor of 16 makes another of these plans better than 1"
        )
    unpriced = list(dict.fromkeys(site for _, one in listed for site in one.cost.unpriced))
    if unpriced:
        console.line(f"note: {unpriced_text(unpriced)}")
    for line in found.assumed:
        console.line(f"assumed: {line}")
    console.line(f"note: {found.record.note}")


def _row(label: str, one: "PlanFigures", names: tuple[str, ...], front: bool) -> tuple[object, ...]:
    more = (100 * one.utilisation,) if front else ()
    cost = one.cost
    each, partial = cost.per_billion_tokens(), bool(cost.unpriced)
    return (
        label, *more, *one.tokens_per_s, one.mean_tokens_per_s,
        one.iteration_s, one.compute_s, one.exposed_comm_s, one.bubble_s,
        one.headroom_bytes / GIB, percent(cost.mfu), at_least(each["total"], partial=partial),
        at_least(each["rent"], partial=partial), at_least(each["egress"]),
        one.egress_usd_per_day, one.gpu_usd_per_day, one.energy_kwh_per_day,
        one.limits.text, _bound(one, names),
    )  # fmt: skip


def _training(label: str, one: "PlanFigures", tokens: float) -> tuple[object, ...]:
    """Returns the row of days and dollars of a plan."""
    found, partial = one.training(tokens), bool(one.cost.unpriced)
    usd = found["usd"]
    return (
        label, found["days"], found["days_p10"], found["days_p90"], at_least(usd["total"], partial=partial),
        at_least(usd["rent"], partial=partial), at_least(usd["egress"]), found["energy_kwh"],
    )  # fmt: skip


def _bound(one: "PlanFigures", names: tuple[str, ...]) -> str:
    """Returns the binding link of a plan, and what twice its bandwidth would gain."""
    if one.binding_link is None:
        return "none"
    return f"{link_text(one.binding_link, names)} {one.binding_gain:+.1%}"


def _changed(change: "TurningPoint", names: tuple[str, ...]) -> str:
    """Returns a turning point as a sentence."""
    link = link_text(change.link, names)
    side = "above" if change.above else "below"
    now, then = (f"{bps / GIGA:.3g}" for bps in (change.now_bps, change.at_bps))
    gain = f"by up to {change.gain:.1%}"
    return f"{side} {then} Gb/s on {link} (now {now}), {change.winner} wins, {gain}"


def tracked(console: Console, found: "TrackedFiles") -> None:
    """Prints the files of a tracked run, and the command that shows it."""
    for name, data in sorted(found.files.items()):
        console.line(f"{found.folder / name} ({len(data):,} bytes)")
    console.line(f"{len(found.run.series)} series; show them: {found.tracker.opened(found.folder)}")


def exported(console: Console, found: "Export") -> None:
    """Prints the files of an export, and what of the plan had to change."""
    for one in found.fitted.changed:
        console.line(f"changed: {one.part} ({one.why}); here {one.instead}{found.cost}")
    for name, data in sorted(found.files.items()):
        console.line(f"{found.folder / name} ({len(data):,} bytes)")
