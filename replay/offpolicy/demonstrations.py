"""Logs are data: the decisions of finished runs as lessons for the warm start of a training.

A decision's advantage is what was trained over the decisions that follow it, relative to what the static plan
would have trained on the same links (by the twin's model), less the mean of that over all decisions. Runs on
other windows than the one that is trained on are refused: what a policy will be graded on must not teach it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError, UsageError
from policy.hippo.training.imitation import Logged
from policy.baselines.static import equal_cuts
from replay.offpolicy import evaluation as offpolicy
from replay.run import runner
from replay.store import run_index as runs
from replay.offpolicy.trajectories import Step, read
from replay.store.run_header import Header, from_payload
from replay.log.run_log import RunReader
from twin.estimate.estimator import Estimator
from twin.scenario.prepare import Setup

AHEAD = 12
"""Decisions whose earnings count for one: a move pays back only later."""


def logged(store: Path, run_ids: Sequence[str], setup: Setup) -> list[Logged]:
    """Decisions of finished runs with their advantages, for a training on the window of `setup`.

    Raises:
        NotFoundError: no such run. InputError: it is unfinished, or several jobs decide in it.
        UsageError: it is of another window or of other traces.
    """
    steps: list[Step] = []
    gains: list[NDArray[np.float64]] = []
    for run_id in (runs.find(store, name) for name in run_ids):
        reader = RunReader(runs.folder(store, run_id))
        mine = read(run_id, reader.events())
        if not mine or not reader.finished:
            raise InputError(f"{run_id}: needs a finished run with decisions")
        header = from_payload(reader.header())
        _check_window(run_id, header, setup)
        stage, _ = runner.restage(store, header, ())
        steps += mine
        gains.append(_gains(stage.context.estimator, mine))
    if not steps:
        return []
    whole = np.concatenate(gains)
    advantage = whole - whole.mean()
    answers = zip(steps, advantage.tolist(), strict=True)
    return [Logged(step.view, step.decision.plan, better) for step, better in answers]


def digests(store: Path, run_ids: Sequence[str]) -> list[str]:
    """Digests of the runs, in order: equal ones are equal lessons.

    Raises:
        NotFoundError: no such run.
    """
    return [RunReader(runs.folder(store, runs.find(store, name))).digest() for name in run_ids]


def _check_window(run_id: str, header: Header, setup: Setup) -> None:
    own, wanted = header.world["traces"]["source"], setup.trace_digest
    if header.window == setup.window and own == wanted:
        return
    raise UsageError(
        f"{run_id}: not a run to learn from: it is on the {header.window} window of "
        f"{header.world['dataset']} ({own[:12]}), training is on the {setup.window} window of "
        f"{setup.dataset} ({wanted[:12]}); make one with twin replay --window {setup.window} on the data set "
        "that is trained on"
    )


def _gains(estimator: Estimator, steps: Sequence[Step]) -> NDArray[np.float64]:
    """Tokens of each decision and those behind it over the static plan's, less one."""
    base = equal_cuts(estimator, range(estimator.cluster.size), [d.gpus for d in estimator.cluster.domains])
    usual = offpolicy.earned(estimator, steps, [(base, base)] * len(steps))
    tokens = np.array([step.tokens for step in steps], dtype=np.float64)
    ends = np.minimum(np.arange(len(steps)) + AHEAD, len(steps))
    sums = [np.concatenate([[0.0], np.cumsum(values)]) for values in (tokens, usual)]
    done, expected = (total[ends] - total[:-1] for total in sums)
    result: NDArray[np.float64] = np.where(expected > 0, done / np.maximum(expected, 1.0) - 1.0, 0.0)
    return result
