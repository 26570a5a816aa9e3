"""Prints re-executed runs, what-ifs and off-policy estimates."""

from typing import TYPE_CHECKING

from commands.show.console import Console, cell
from replay.metrics.formatting import counted

if TYPE_CHECKING:  # a command loads only the packages of its own result
    from replay.audit.rerun import Rerun
    from replay.offpolicy.evaluation import OffPolicy
    from replay.run.whatif import WhatIf


def rerun(console: Console, found: "Rerun") -> None:
    """Prints whether a re-executed run is equal, or its first difference."""
    state = f"{counted(found.compared, 'event')} computed again"
    if found.equal:
        console.line(f"{found.run_id}: {state}, equal in every byte")
    else:
        console.line(f"{found.run_id}: event {found.seq} is the first that differs: {found.difference}")
    for note in found.notes:
        console.line(f"note: {note}")


def what_if(console: Console, found: "WhatIf") -> None:
    """Prints two runs: the decision where their plans part, and every figure of both."""
    base_name, other_name = found.base_policy, found.policy
    if base_name == other_name:
        base_name, other_name = f"{base_name}, as it was", f"{other_name}, what if"
    console.line(f"{found.base_run} ({found.base_policy}) beside {found.run_id} ({found.policy})")
    if found.base_branch is not None:
        left = "{run} at decision {decision}".format(**found.base_branch)
        console.line(f"  {found.base_run} is a what-if itself: it leaves {left}")
    for changed in found.base_links:
        console.line(f"  {found.base_run} has already: {changed}")
    split = found.divergence
    if split is None:
        console.line("the two never have different plans")
    else:
        console.line(f"they part at decision {split.number}, {split.at_s:,.0f} s ({split.trigger}):")
        console.line(f"  {base_name}: {_plan_and_reason(split.base, split.base_reason)}")
        console.line(f"  {other_name}: {_plan_and_reason(split.other, split.other_reason)}")
    base, other = found.base.numbers(), found.other.numbers()
    rows = [
        (
            name.replace("_", " "),
            cell(base[name]),
            cell(other[name]),
            cell(difference),
            _share(base[name], difference),
        )
        for name, difference in found.differences.items()
    ]
    console.table("", ("figure", base_name, other_name, "difference", "share"), rows)
    verdicts = [
        (v.kpi, f"{v.mean:+.4g}", *((f"{v.low:+.4g}", f"{v.high:+.4g}") if v.estimated else ("-", "-")))
        for v in found.verdicts
    ]
    console.table(
        f"paired over blocks of time (positive: {other_name} is better; tokens as a share)",
        ("kpi", "mean", "95 % from", "to"),
        verdicts,
    )
    for note in found.notes:
        console.line(f"note: {note}")


def offpolicy(console: Console, found: "OffPolicy") -> None:
    """Prints the off-policy estimates of a policy, a line a method."""
    console.line(f"{found.policy}, from the logs of {', '.join(found.run_ids)}")
    rows = [
        (
            e.method,
            cell(e.tokens),
            "-" if e.tokens is None else _share(found.logged, e.tokens - found.logged),
            cell(e.low),
            cell(e.high),
        )
        for e in found.estimates
    ]
    console.table("tokens of a run", ("method", "estimate", "against logged", "95 % from", "to"), rows)
    console.line(f"logged           {cell(found.logged)} tokens, {found.decisions} decisions")
    console.line(f"the log agrees   up to {100 * found.reaches:.0f} % of the decisions")
    console.line(f"the same plans   at {100 * found.matched:.0f} % of them")
    console.line(f"effective runs   {found.effective_runs:.2f} of {len(found.run_ids)}")
    for note in found.notes:
        console.line(f"note: {note}")


def _plan_and_reason(plan: str, reason: str) -> str:
    """Returns a plan and its reason; many reasons contain the plan."""
    return reason if plan and plan in reason else f"{plan or 'no plan'}: {reason}"


def _share(base: float | None, difference: float | None) -> str:
    return f"{100 * difference / base:+.2f} %" if base and difference is not None else "-"
