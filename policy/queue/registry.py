"""Recipes by name: ORDER, ORDER+BACKFILL, and the names that the field uses for some of them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import cast, get_args

from ingest.core.errors import UsageError
from ingest.core.names import unknown
from policy.queue import aging_orders, fixed_orders, published_slips, served_orders
from twin.queue.recipe import Backfill, KeysOf, QueueRecipe
from twin.queue.shares import EQUAL, FairShares

HOUR_S, DAY_S = 3600, 86_400
HALF_LIFE_S = 7.0 * DAY_S
"""Of usage in `fair-tree`: what Slurm takes (PriorityDecayHalfLife)."""
HALF_LIFE = re.compile(r"(fair-tree(?:-accounts)?)-([1-9]\d{0,3})([hd])")
ACCOUNTS = "fair-tree-accounts"
"""The order that knows accounts, and their shares."""
ORDERS: dict[str, tuple[KeysOf, str, str]] = {
    "fcfs": (fixed_orders.fcfs, "first come, first served", "folklore"),
    "sjf": (fixed_orders.sjf, "shortest predicted run time first", "Smith, NRLQ 1956"),
    "ljf": (fixed_orders.ljf, "most processors first", "Mu'alem and Feitelson, TPDS 2001"),
    "saf": (fixed_orders.saf, "smallest predicted area first", "Carastan-Santos et al., CCGrid 2019"),
    "f1": (fixed_orders.f1, "log10(r) n + 870 log10(s)", "Carastan-Santos and de Camargo, SC 2017"),
    "wfp3": (aging_orders.wfp3, "-(w / r)^3 n", "Tang et al., CLUSTER 2009"),
    "unicef": (aging_orders.unicef, "-w / (log2(n) r)", "Tang et al., CLUSTER 2009"),
    "hrrn": (aging_orders.hrrn, "highest response ratio next, (w + r) / r", "Brinch Hansen, IFIP 1971"),
    "las": (served_orders.las, "the user with the least attained service first", "Kay and Lauder, CACM 1988"),
    "fair-tree": (
        served_orders.fair_tree(HALF_LIFE_S),
        "the user with the least usage first, halved every 7 days, or as in fair-tree-12h, fair-tree-14d",
        "Cox and Morrison, Slurm User Group 2014",
    ),
    ACCOUNTS: (
        served_orders.fair_tree_accounts(HALF_LIFE_S),
        "the same with accounts above users, and --shares, by level fairshare",
        "Cox and Morrison, Slurm User Group 2014",
    ),
    "drf": (served_orders.drf, "the user with the smallest dominant share first", "Ghodsi et al., NSDI 2011"),
    "priority": (fixed_orders.priority, "lowest priority number first", "folklore"),
    "edf": (fixed_orders.edf, "earliest deadline first", "Liu and Layland, JACM 1973"),
    "wfp3-slip": (published_slips.wfp3_slip, "wfp3 with w = -1 - s", "RLScheduler, Zhang et al., SC 2020"),
    "unicep-slip": (published_slips.unicep_slip, "unicef with w = -1 - s", "RLScheduler, SC 2020"),
}
"""Keys, meaning and source of each order. A new one is a function and a line here."""
ALIASES = {
    "easy": ("fcfs", "easy", "EASY backfilling", "Lifka, JSSPP 1995"),
    "easy-sjbf": (
        "fcfs",
        "easy-sjbf",
        "EASY, shortest candidates first",
        "Tsafrir et al., TPDS 2007",
    ),
    "conservative": (
        "fcfs",
        "conservative",
        "a reservation for all",
        "Mu'alem and Feitelson, TPDS 2001",
    ),
}
"""Order, backfill, meaning and source of names that say both."""
LEARNED = "learned"
"""An order that a network makes; its weights lie in a file (`checkpoint.py`)."""
OVERTAKING = tuple(backfill for backfill in get_args(Backfill) if backfill != "none")


def names() -> Iterator[str]:
    """Yields every name: the orders without backfill, the field's names, then every composition."""
    yield from ORDERS
    yield from ALIASES
    for order in ORDERS:
        yield from (f"{order}+{backfill}" for backfill in OVERTAKING)


def known(name: str) -> bool:
    """Returns True for a name that makes a recipe, with a half-life in it or without."""
    order, plus, backfill = name.partition("+")
    found = HALF_LIFE.fullmatch(order)
    base = found[1] if found else order
    return f"{base}{plus}{backfill}" in names()


def recipe(name: str, shares: FairShares = EQUAL) -> QueueRecipe:
    """Returns the recipe of that name: an order, ORDER+BACKFILL, or a name of the field; one that knows
    accounts has these shares.

    Raises:
        UsageError: there is none.
    """
    if name in ALIASES:
        order, backfill, summary, source = ALIASES[name]
        return QueueRecipe(name, ORDERS[order][0], cast(Backfill, backfill), summary, source)
    order, _, backfill = name.partition("+")
    if name == LEARNED:
        raise UsageError(
            f"policy {LEARNED} is a network: add --checkpoint FILE, which `twin train --queue LOG` makes; "
            "`twin queue LOG` on one pool plays it"
        )
    if found := HALF_LIFE.fullmatch(order):
        half_life_s = float(found[2]) * (DAY_S if found[3] == "d" else HOUR_S)
        made = recipe("+".join((found[1], backfill)) if backfill else found[1])
        return replace(made, name=name, keys=_fair_tree(found[1], half_life_s, shares))
    if order not in ORDERS or (backfill or "none") not in get_args(Backfill):
        raise UsageError(
            f"{unknown('policy', name, names(), (*ALIASES, *ORDERS))}; "
            f"an order takes a backfill behind +, as in saf+easy ({', '.join(OVERTAKING)})"
        )
    keys, summary, source = ORDERS[order]
    keys = _fair_tree(order, HALF_LIFE_S, shares) if order == ACCOUNTS else keys
    chosen = cast(Backfill, backfill or "none")
    return QueueRecipe(name, keys, chosen, summary + (f", backfill {chosen}" if backfill else ""), source)


def _fair_tree(order: str, half_life_s: float, shares: FairShares) -> KeysOf:
    if order == ACCOUNTS:
        return served_orders.fair_tree_accounts(half_life_s, shares)
    return served_orders.fair_tree(half_life_s)
