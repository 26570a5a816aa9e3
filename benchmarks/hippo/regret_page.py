"""The tables of regret: the page docs/measured/regret.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hippo.hindsight import KEPT, PATH
from replay.metrics.paired_comparison import PairedDifference, student

SETS = (
    "tri-7b@wanify-aws8", "quad-70b", "geant-70b", "storm", "octo-175b", "tri-7b@synthetic-tri",
    "quad-70b@synthetic-quad", "octo-175b@synthetic-octo", "planet-405b",
)  # fmt: skip
BASELINES = ("static", "single", "greedy", "dtfm", "sailor", "history", "history-hour", "mpc")
UNTRAINED, SHIPS_ALONE, SHIPS = "hippo, network untrained", "network alone, as it ships", "hippo as it ships"
OWN_ALONE, OWN = "network alone", "hippo"
LEARNED = (UNTRAINED, SHIPS_ALONE, OWN_ALONE, SHIPS, OWN)
AIMS = {
    "quad-70b": 2.0,
    "geant-70b": 2.0,
    "octo-175b": 3.5,
    "storm": 5.0,
    "planet-405b": 5.0,
    "tri-7b@wanify-aws8": 1.0,
}
"""Regret of hippo in per cent that was asked for."""
BEFORE = {
    "quad-70b": (6.8, 5.8), "storm": (9.2, 9.2), "geant-70b": (2.5, 2.4), "octo-175b": (6.1, 5.9),
    "planet-405b": (11.0, 11.2), "tri-7b@wanify-aws8": (0.5, 3.8), "tri-7b@synthetic-tri": (3.4, 3.3),
    "quad-70b@synthetic-quad": (1.4, 1.4), "octo-175b@synthetic-octo": (11.1, 9.7),
}  # fmt: skip
"""Regret of hippo and mpc before, per cent: docs/measured/results.md, sources b1df0f92bf1d."""
Json = dict[str, Any]
_RECIPES = ("greedy", "dtfm", "sailor")
"""Published planners, of which the first table names the best."""


def cells(folder: Path) -> dict[str, list[Json]]:
    """Returns the cells by scenario, in the order of seeds."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    ordered = sorted(found, key=lambda one: one["seed"])
    return {title: [one for one in ordered if one["title"] == title] for title in SETS if any(
        one["title"] == title for one in ordered
    )}  # fmt: skip


def regrets(group: list[Json], policy: str) -> PairedDifference | None:
    """Returns the mean regret of a policy in per cent with its interval; None where it cannot run."""
    if any(policy not in one["runs"] for one in group):
        return None
    return student(policy, np.array([100 * (1 - one["runs"][policy][0] / one["bound"]) for one in group]))


def gains(group: list[Json], policy: str, other: str) -> PairedDifference | None:
    """Returns by how many per cent a policy trains more than another in the same worlds; None where one of
    them has not run."""
    if any(who not in one["runs"] for one in group for who in (policy, other)):
        return None
    runs = [(one["runs"][policy][0], one["runs"][other][0]) for one in group]
    return student(policy, np.array([100 * (mine / theirs - 1) for mine, theirs in runs]))


def ours(group: list[Json]) -> tuple[str, str]:
    """Returns the names of Hi-PPO and of its network alone: with weights of the own past, else as they
    ship."""
    return (OWN, OWN_ALONE) if all(OWN in one["runs"] for one in group) else (SHIPS, SHIPS_ALONE)


def trainings(group: list[Json]) -> str:
    """Returns the number of trainings on the own past as a cell of a table."""
    count = sum(one["training_s"] > 0 for one in group)
    return str(count) if count else "none: as it ships"


def interval(found: PairedDifference | None, digits: int = 2) -> str:
    """Returns mean and interval as a cell of a table."""
    if found is None:
        return "-"
    if found.low == found.high:
        return f"{found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Returns a Markdown table."""
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def headline(found: dict[str, list[Json]]) -> str:
    """Returns mean regrets in per cent: fixed plans, the best planner of others, the past's, ours."""

    def mean(group: list[Json], policy: str) -> str:
        of = regrets(group, policy)
        return "-" if of is None else f"{of.mean:.1f}"

    def rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            others = {name: of.mean for name in _RECIPES if (of := regrets(group, name)) is not None}
            best = min(others, key=others.__getitem__, default=None)
            yield (
                title.replace("@", " on "), mean(group, "static"), mean(group, "single"),
                "-" if best is None else f"`{best}` {others[best]:.1f}",
                *(mean(group, name) for name in ("history", "mpc", *ours(group))), trainings(group),
            )  # fmt: skip

    names = ("static", "single", "best of other planners", "history", "mpc", "hippo", "its network alone")
    return table(("links", *names, "trainings"), rows())


def page(found: dict[str, list[Json]]) -> str:
    """Returns the text of docs/measured/regret.md."""
    everybody = (*BASELINES, *LEARNED)
    codes = sorted({one["code"] for group in found.values() for one in group})

    def regret_rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            yield title, *(interval(regrets(group, policy), 1) for policy in everybody), str(len(group))

    def verdict_rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            before, (hippo, alone) = BEFORE[title], ours(group)
            own = regrets(group, hippo)
            assert own is not None, f"{title} has no run of Hi-PPO"
            aim = AIMS.get(title)
            met = "-" if aim is None else "met" if own.mean <= aim else f"missed by {own.mean - aim:.1f}"
            yield (
                title, f"{before[0]:.1f}", f"{own.mean:.1f}", "-" if aim is None else f"<= {aim:g}", met,
                *(interval(gains(group, hippo, other)) for other in ("mpc", "history")),
                interval(gains(group, alone, hippo)), interval(gains(group, hippo, UNTRAINED)),
            )  # fmt: skip

    def cause_rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            means = [regrets(group, who) for who in (ours(group)[0], PATH, KEPT)]
            own, *hindsight = [None if one is None else one.mean for one in means]
            least = min((one for one in hindsight if one is not None), default=None)
            if own is not None and least is not None:
                parts = (own, *hindsight, least, own - least)
                yield title, *("-" if one is None else f"{round(one, 1) + 0.0:.1f}" for one in parts)

    def training_rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            if not any(one["scores"] for one in group):
                continue
            warm = np.array([one["scores"][0][1] for one in group])
            best = np.array([max(score for _, score in one["scores"]) for one in group])
            minutes = np.array([one["training_s"] / 60 for one in group])
            yield (
                title, f"{minutes.mean():.1f}", *(interval(student("", one), 3) for one in (warm, best)),
                f"{sum(best > warm)} of {len(group)}",
                interval(gains(group, OWN_ALONE, SHIPS_ALONE)),
            )  # fmt: skip

    return f"""# Regret: what every policy leaves of the possible

Generated by `python -m benchmarks.hippo.regret page` from cells of `python -m benchmarks.hippo.regret run`,
sources {", ".join(codes)}. Test windows, the last 30 % of each trace. A cell is a seed: its own training of
Hi-PPO on the links' own past (`twin train`), its own noise of telemetry. Sets named synthetic are synthetic.
Figures are means over cells with their 95 % t-interval. Where the last column of the first table says "none",
nothing was trained: Hi-PPO has the weights that ship.

## At a glance

{headline(found)}

Mean regrets, per cent. *Best of other planners*: of {", ".join(f"`{name}`" for name in _RECIPES)}.

*history* keeps the plan that was best over the links' past, with its relays and warm-up adjusted; *mpc*
searches again as links change; *hippo* lets the twin verify the network's proposals. To know the links'
past is worth most, to plan again little more, and greedy moves lose. With an untrained network Hi-PPO
reaches the same: what the network learns adds nothing to the search, though alone it is far ahead of
fixed plans.

## Regret, per cent of the clairvoyant bound

{table(("links", *everybody, "cells"), regret_rows())}

*hippo, network untrained*: search, past and verification alone decide. *network alone*: the likeliest answer,
unverified. *as it ships*: with the general checkpoint; the others of Hi-PPO with weights of the own past.

## Hi-PPO: before and now, and against the planners

Per cent. *More than*: iterations beyond those of the other policy in the same worlds. Before: as of
docs/measured/results.md, whose bound did not yet count the iteration under way.

{
        table(
            (
                "links",
                "regret before",
                "now",
                "aim",
                "met",
                "more than mpc",
                "more than history",
                "network alone against hippo",
                "more than without a network",
            ),
            verdict_rows(),
        )
    }

## Where the rest lies

Two policies that know the future play in the same worlds: one follows the bound's own path, the other keeps
the plan that is best in hindsight; both turn free knobs as `mpc` does. The bound moves and turns knobs at any
instant; in the world a plan takes effect when an iteration ends, and links are known by telemetry. So their
regret is what no choice of plans brings back, and the last column is what better choices could bring, per
cent; below 0 Hi-PPO does more than both.

{table(("links", "hippo", PATH, KEPT, "left to whoever knows", "left to choices"), cause_rows())}

## Training on the own past

Minutes are CPU minutes of one training; validation is the mean reward of a period.

{
        table(
            (
                "links",
                "minutes",
                "validation after the warm start",
                "at the end",
                "PPO improves on the warm start",
                "network alone: own past against as it ships, per cent",
            ),
            training_rows(),
        )
    }
"""
