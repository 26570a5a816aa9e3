"""Random small queues, and recipes and rules that can be played together."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from policy.queue import registry, served_orders
from twin.queue.dependencies import Dependencies
from twin.queue.jobs import QueueJobs
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import RULES, QueueRules
from twin.queue.shares import FairShares
from twin.queue.simulation import check

POOL = 8
FORGETFUL_S = 5.0
"""A half-life of usage, seconds, in which these small queues change their order."""

SHARES = FairShares({0: 3, 1: 0}, {(0, 1): 2, (1, 0): 5, (2, 2): 0})


def _recipe(name: str) -> QueueRecipe:
    made = registry.recipe(name)
    if name.startswith("fair-tree-accounts"):
        return replace(made, keys=served_orders.fair_tree_accounts(FORGETFUL_S, SHARES))
    return replace(made, keys=served_orders.fair_tree(FORGETFUL_S)) if name.startswith("fair-tree") else made


RECIPES = {name: _recipe(name) for name in registry.names()}


def playable(recipe: QueueRecipe, rules: QueueRules) -> bool:
    """Returns True if a recipe can be played under the rules."""
    try:
        check(QueueJobs.of_seconds([0], [1], [1]), 1, recipe, rules)
    except UsageError:
        return False
    return True


PLAYABLE = {
    name: [rules for rules in RULES.values() if playable(recipe, rules)] for name, recipe in RECIPES.items()
}
"""Rules under which each recipe can be played."""


@st.composite
def queues(draw: st.DrawFn, most: int = 24) -> QueueJobs:
    """Jobs on a pool of `POOL`, in whole seconds; small ranges make ties of all kinds common."""
    count = draw(st.integers(1, most))

    def column(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    top = draw(st.sampled_from((3, 12, 1000)))
    run = column(1, top)
    more = column(-1, top)
    return QueueJobs.of_seconds(
        column(0, draw(st.sampled_from((0, 5, 40, 2 * top)))), run, column(1, POOL),
        [max(1, one + extra) for one, extra in zip(run, more, strict=True)],
        user=column(-1, 2), account=[0, *column(-1, 2)[1:]], priority=column(-1, 2), deadline=column(1, 50),
    )  # fmt: skip


@st.composite
def dependencies(draw: st.DrawFn, count: int) -> Dependencies:
    """Preceding jobs, in any order but never in a circle, and think times, often none."""
    order = draw(st.permutations(range(count)))
    before = np.full(count, -1)
    for at, job in enumerate(order):
        if at and draw(st.booleans()):
            before[job] = order[draw(st.integers(0, at - 1))]
    think = draw(st.lists(st.sampled_from((0, 0, 1, 7)), min_size=count, max_size=count))
    return Dependencies(before, np.array(think) * NS_PER_S)
