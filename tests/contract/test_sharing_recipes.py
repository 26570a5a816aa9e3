"""Every scheduler of changing jobs: the engine plays it as the referee does, and keeps its promises."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.sharing.registry import RECIPES
from tests.support.sharing_worlds import sharing_worlds
from twin.sharing import engine, referee
from twin.sharing.changes import CHANGES, ChangeRules
from twin.sharing.engine import SharingWorld
from twin.sharing.progress import ENDED, REFUSED

SLOW = [name for name, one in RECIPES.items() if one.tunes]
"""Schedulers that search every minute: they are held to fewer and smaller worlds."""
FAST = [name for name in RECIPES if name not in SLOW]
RULES = list(CHANGES.values())[:2]


@pytest.mark.parametrize("name", FAST)
@given(world=sharing_worlds())
@settings(max_examples=25, deadline=None)
def test_engine_and_referee_write_the_same_events(name: str, world: SharingWorld) -> None:
    check_referee(name, world)


@pytest.mark.parametrize("name", SLOW)
@given(world=sharing_worlds(most=6, longest_s=400))
@settings(max_examples=10, deadline=None)
def test_slow_ones_write_the_same_events(name: str, world: SharingWorld) -> None:
    check_referee(name, world)


def check_referee(name: str, world: SharingWorld) -> None:
    done = engine.play(world, RECIPES[name].make())
    assert referee.named(done.events) == referee.referee_events(world, RECIPES[name].make())


@pytest.mark.parametrize("name", FAST)
@given(world=sharing_worlds(), bound=st.integers(0, 3), rules=st.sampled_from(RULES))
@settings(max_examples=25, deadline=None)
def test_no_job_is_preempted_more_often_than_the_bound(
    name: str, world: SharingWorld, bound: int, rules: ChangeRules
) -> None:
    check_bound(name, world, bound, rules)


@pytest.mark.parametrize("name", SLOW)
@given(world=sharing_worlds(most=6, longest_s=400), bound=st.integers(0, 3), rules=st.sampled_from(RULES))
@settings(max_examples=10, deadline=None)
def test_slow_ones_keep_the_bound(name: str, world: SharingWorld, bound: int, rules: ChangeRules) -> None:
    check_bound(name, world, bound, rules)


def check_bound(name: str, world: SharingWorld, bound: int, rules: ChangeRules) -> None:
    held = replace(rules, most_preemptions=bound)
    done = engine.play(replace(world, rules=held), RECIPES[name].make())
    assert done.states.preempted.max() <= bound
    assert np.isin(done.states.status, (ENDED, REFUSED)).all()
