"""Every scheduler of changing jobs: the engine plays it as the referee does, and keeps its promises."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.sharing.registry import RECIPES
from tests.support.sharing_worlds import sharing_worlds
from twin.sharing import engine, referee
from twin.sharing.changes import CHANGES
from twin.sharing.engine import SharingWorld
from twin.sharing.progress import ENDED, REFUSED


@pytest.mark.parametrize("name", RECIPES)
@given(world=sharing_worlds())
@settings(max_examples=25, deadline=None)
def test_engine_and_referee_write_the_same_events(name: str, world: SharingWorld) -> None:
    done = engine.play(world, RECIPES[name].make())
    assert referee.named(done.events) == referee.referee_events(world, RECIPES[name].make())


@pytest.mark.parametrize("name", RECIPES)
@given(world=sharing_worlds(), bound=st.integers(0, 3), data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_job_is_preempted_more_often_than_the_bound(
    name: str, world: SharingWorld, bound: int, data: st.DataObject
) -> None:
    rules = replace(data.draw(st.sampled_from(list(CHANGES.values())[:2])), most_preemptions=bound)
    done = engine.play(replace(world, rules=rules), RECIPES[name].make())
    assert done.states.preempted.max() <= bound
    assert np.isin(done.states.status, (ENDED, REFUSED)).all()
