"""Sia: the program beside every choice there is, places, and two models of GPUs."""

import os
from ctypes import CDLL
from itertools import product

import numpy as np
import pytest

from policy.sharing.pollux import INTERVAL_NS
from policy.sharing.sia import (
    LEAST_WORTH,
    POWER,
    WAITING_COST,
    Configuration,
    SiaRounds,
    _unprinted,
    models_now,
    placed_anew,
    solve,
    worths,
)
from tests.support.goodput_jobs import played
from twin.sharing.changes import STEADY
from twin.sharing.progress import END, MOVE, RESIZE, RESUME
from twin.sharing.view import SharingView


@pytest.mark.parametrize("seed", range(4))
def test_the_program_finds_the_least_cost_of_all_choices(seed: int) -> None:
    random = np.random.default_rng(seed)
    free = np.array([4.0, 6.0])
    offered = [
        Configuration(row, model, 1, gpus, gpus, gpus ** random.uniform(0.3, 1.0) * (1 + model))
        for row, model, gpus in product(range(4), range(2), (1, 2, 4))
    ]
    worth = worths(offered, [(0, 2), (1, 4), (0, 0), (0, 0)], random.uniform(0.3, 1.0, 4))
    best = np.inf
    each = [[None, *(at for at, one in enumerate(offered) if one.row == row)] for row in range(4)]
    for chosen in product(*each):
        taken = [at for at in chosen if at is not None]
        used = np.bincount([offered[at].model for at in taken], [offered[at].gpus for at in taken], 2)
        if (used <= free).all():
            best = min(best, (worth[taken] ** POWER).sum() + WAITING_COST * (4 - len(taken)))
    found = solve(offered, worth, free)
    cost = sum(worth[offered.index(one)] ** POWER for one in found) + WAITING_COST * (4 - len(found))
    assert cost == pytest.approx(best, rel=1e-4)


def test_nothing_is_printed_while_the_solver_works(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(1, b"before ")
    with _unprinted():
        os.write(1, b"hidden ")
        CDLL(None).puts(b"hidden as well")
    os.write(1, b"after")
    assert capfd.readouterr().out == "before after"


def test_worths_are_goodputs_over_the_least_and_less_for_a_change() -> None:
    offered = [Configuration(0, 0, 1, 1, 1, 5.0), Configuration(0, 0, 1, 2, 2, 8.0)]
    assert worths(offered, [(0, 1)], np.array([0.5])).tolist() == [1.0, 0.8]
    assert worths(offered, [(0, 2)], np.array([0.0])).tolist() == [LEAST_WORTH, 1.6]


def view_of(sizes: list[int]) -> SharingView:
    """A view of which only the sizes of nodes matter."""
    made = object.__new__(SharingView)
    object.__setattr__(made, "sizes", np.array(sizes))
    return made


def test_smaller_jobs_are_moved_where_a_larger_one_does_not_fit() -> None:
    # Two nodes of 4 with a job of 1 and one of 2 each; a third asks for 4: the node of less is cleared.
    now = np.array([[1, 0], [2, 0], [0, 1], [0, 0]])
    chosen = [Configuration(row, 0, 1, gpus, gpus, 1.0) for row, gpus in enumerate((1, 2, 1, 4))]
    found = placed_anew(view_of([4, 4]), chosen, now, np.zeros(2, np.int64), np.array([4, 4]),
                        np.zeros(2, np.bool_))  # fmt: skip
    assert found.tolist() == [[1, 0], [2, 0], [1, 0], [0, 4]]


def test_whole_nodes_are_cleared_for_a_job_over_several() -> None:
    now = np.array([[0, 2, 0], [0, 0, 0]])
    chosen = [Configuration(0, 0, 1, 2, 2, 1.0), Configuration(1, 0, 2, 8, 8, 1.0)]
    free, none = np.array([2, 4, 4]), np.zeros(3, np.bool_)
    found = placed_anew(view_of([4, 4, 4]), chosen, now, np.zeros(3, np.int64), free, none)
    assert found.tolist() == [[2, 0, 0], [0, 4, 4]]
    assert models_now(found, np.zeros(3, np.int64)) == [(0, 2), (0, 8)]


def test_a_job_that_nothing_makes_room_for_waits() -> None:
    chosen = [Configuration(0, 0, 2, 8, 8, 1.0)]
    found = placed_anew(view_of([4, 4]), chosen, np.zeros((1, 2), np.int64), np.zeros(2, np.int64),
                        np.array([4, 4]), np.array([True, False]))  # fmt: skip
    assert not found.any()


def test_one_job_doubles_and_goes_to_the_faster_model() -> None:
    done = played(SiaRounds(), 1, sizes=(4, 4), models=(0, 1))
    held = done.events[done.events[:, 3] > 0]
    assert held[:3, 3].tolist() == [1, 2, 4]
    assert held[:3, 4].tolist() == [1, 1, 1]  # the node of the fast model, from the start


def test_rounds_and_restarts_are_as_the_rules_say() -> None:
    done = played(SiaRounds(), 6, STEADY, models=(0, 1))
    time, kind, _, gpus, *_ = done.events.T
    assert (time[kind != END] % INTERVAL_NS == 0).all()
    changed = np.isin(kind, (RESUME, RESIZE, MOVE))
    assert changed.any() and done.states.lost.sum() == (gpus[changed] * 10 * 10**9).sum()
