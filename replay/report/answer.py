"""First section: what the run gained against the simple policies, how near the bound it is, what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from replay.metrics.cost_time_points import CostTimePoint
from replay.metrics.kpis import Kpis
from replay.metrics.paired_comparison import PairedDifference
from replay.report.drawing.formatting import percent, plain, scaled
from replay.report.drawing.section import Section, section
from replay.report.kpi_table import blocks, saving, spread
from replay.report.run_data import RunData

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.bench.comparison import Comparison
    from replay.run.whatif import WhatIf

RIVALS = ("static", "single", "mpc")
"""Policies that a run is held against: never moving, one site alone, look-ahead control."""


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with its meaning, and a small line below; `css` is `good`, `bad` or neither."""

    value: str
    meaning: str
    small: str = ""
    command: str = ""
    css: str = ""


def savings(store: Path, run_id: str, run: RunData, runs: dict[str, str]) -> dict[str, PairedDifference]:
    """Share of each rival's time per token that the run saves, paired over blocks of time; `runs`: the run of
    each policy in this world."""
    wanted = {policy: runs[policy] for policy in RIVALS if runs.get(policy, run_id) != run_id}
    if not wanted or not run.finished:
        return {}
    own, seed = blocks(store, run_id, run.end_s), run.header["seed"]
    return {policy: saving(blocks(store, other, run.end_s), own, seed) for policy, other in wanted.items()}


def runs_of_world(found: Sequence[CostTimePoint], result: "Comparison | None") -> dict[str, str]:
    """Returns the run that stands for each policy: that of the comparison, else the newest of this world."""
    runs = {point.policy: point.run_id for point in found}
    if result is not None:
        runs |= {row.policy: row.run_id for row in result.rows if row.run_id is not None and row.kpis}
    return runs


def answer(
    run: RunData, run_id: str, kpis: Kpis, found: dict[str, PairedDifference], result: "Comparison | None",
    parent: "WhatIf | None" = None,
) -> Section:  # fmt: skip
    """The sentence and its figures, one a card; of a what-if first the comparison with its parent."""
    policy = run.header["policy"]
    cards = [Card(scaled(kpis.time_per_token_s, 1e6, " µs"), "a token, moves and waits included")]
    if parent is not None:
        cards.append(_against_parent(parent))
    cards += [_rival(name, policy, found.get(name), run, run_id) for name in RIVALS if name != policy]
    regret = _regret(result, run_id)
    if regret is None:
        cards.append(_no_bound(run, run_id))
    else:
        cards.append(
            Card(percent(1 - regret), "of the tokens of the clairvoyant bound", "it knows the future")
        )
    usd = scaled(kpis.usd_per_token, 1e9)
    cards.append(Card(f"${kpis.egress_usd:,.2f}", "egress", f"{usd} USD per 10⁹ tokens"))
    cards.append(
        Card(f"${kpis.gpu_usd:,.2f}", "GPU time held", f"utilisation in the plan {percent(kpis.utilisation)}")
    )
    sentence = _sentence(run, kpis, found, regret)
    if parent is not None:
        sentence = f"{_sentence_on_parent(parent)} {sentence}"
    return section("answer", "The answer", sentence=sentence, cards=cards)


def _no_bound(run: RunData, run_id: str) -> Card:
    """The card of a bound that is not computed, with the command that computes it where there is one."""
    scenario = run.header["scenario"]
    if scenario.get("jobs") or scenario.get("arrivals") is not None:
        return Card("–", "of the clairvoyant bound: none is known for several jobs")
    if not run.finished or run.header.get("plan") is not None:
        what = "not computed for a plan that is kept" if run.finished else "computed for finished runs"
        return Card("–", f"of the clairvoyant bound: {what}", "", _resuming(run, run_id))
    return Card("–", "of the clairvoyant bound: not computed", "", f"twin report {run_id} --compare")


def _resuming(run: RunData, run_id: str) -> str:
    """The command that finishes a run; nothing for a finished one and for a service."""
    return "" if run.finished or run.header.get("live") else f"twin replay --resume {run_id}"


def _time_saved(parent: "WhatIf") -> float | None:
    """Share of the parent's time per token that a what-if saves."""
    base, own = parent.base.time_per_token_s, parent.other.time_per_token_s
    return None if base is None or own is None else 1 - own / base


def _against_parent(parent: "WhatIf") -> Card:
    """The time per token of a what-if against that of its parent."""
    saved, tokens = _time_saved(parent), parent.verdicts[0]
    interval = f"tokens gained, 95 % interval: {spread(tokens, 100.0, '+')} %"
    if saved is None:
        return Card("–", "against its parent: one of the two trained nothing", interval)
    if not (tokens.better or tokens.worse):
        return Card(percent(saved, sign="+"), "time a token saved against its parent: no different", interval)
    word, css = ("less", "good") if saved > 0 else ("more", "bad")
    return Card(percent(abs(saved)), f"{word} time a token than its parent", interval, css=css)


def _sentence_on_parent(parent: "WhatIf") -> str:
    """What the change does, in words."""
    saved, tokens = _time_saved(parent), parent.verdicts[0]
    if saved is None:
        return "One of this run and its parent trained nothing."
    if not (tokens.better or tokens.worse):
        if abs(saved) < 5e-4:
            return "The change makes no difference."
        return f"The change makes no difference beyond chance: {percent(saved, sign='+')} time a token saved."
    if saved < 0:
        return f"The change costs {percent(-saved)} more time a token than in its parent."
    return f"The change saves {percent(saved)} of the time a token in its parent."


def _rival(name: str, policy: str, saved: PairedDifference | None, run: RunData, run_id: str) -> Card:
    if saved is None:
        command = _resuming(run, run_id)
        if run.finished:  # the same world, whatever window, links and seed it has
            command = f"twin replay --run {run_id} --policy {name}"
        return Card("–", f"against {name}: no finished run of it in this world", "", command)
    interval = f"saved, 95 % interval: {spread(saved, 100.0, '+')} %"
    if not (saved.better or saved.worse):
        return Card(
            percent(saved.mean, sign="+"), f"time a token saved against {name}: no different", interval
        )
    word, css = ("less", "good") if saved.better else ("more", "bad")
    return Card(percent(abs(saved.mean)), f"{word} time a token than {name}", interval, css=css)


def _regret(result: "Comparison | None", run_id: str) -> float | None:
    rows = () if result is None else result.rows
    return next((row.regret for row in rows if row.run_id == run_id and row.kpis), None)


def _sentence(run: RunData, kpis: Kpis, found: dict[str, PairedDifference], regret: float | None) -> str:
    """What was gained in words; a difference whose interval holds zero is none."""
    policy, parts = run.header["policy"], []
    for name, saved in found.items():
        if not (saved.better or saved.worse):
            parts.append(f"as much as {name}")
        else:
            word = "more" if saved.worse else "less"
            parts.append(f"{percent(abs(saved.mean))} {word} than {name}")
    gained = f": {', '.join(parts)}" if parts else ""
    text = f"{policy} needs {scaled(kpis.time_per_token_s, 1e6)} µs a token{gained}."
    if regret is not None:
        most = "of the tokens that a planner who knows the future reaches at most"
        text += f" That is {percent(1 - regret)} {most}."
    moves = f"{kpis.moves} move" + ("" if kpis.moves == 1 else "s")
    return f"{text} {moves} in {kpis.decisions} decisions, {plain(kpis.paused_s)} s paused for them."
