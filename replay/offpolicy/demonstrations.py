"""Demonstrations: the decisions of finished runs for imitation in the warm start of a training.

The advantage of a decision is the tokens trained over the decisions that follow it, relative to those of the
static plan on the same links (by the twin's model), less the mean over all decisions. Runs on other windows
than that of the training are refused, so that no policy is trained on the data that it is evaluated on.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError, UsageError
from policy.core.reference_plan import equal_cuts
from policy.hippo.training.imitation import LoggedDemonstration
from replay.log.run_log import RunReader
from replay.offpolicy import evaluation
from replay.offpolicy.trajectories import LoggedTransition, read
from replay.run import runner
from replay.store import run_index
from replay.store.run_header import Header, from_payload
from replay.store.run_kind import require_plans
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario

AHEAD = 12
"""Decisions over which the tokens of one count: a move pays back later."""


def logged(store: Path, run_ids: Sequence[str], setup: PreparedScenario) -> list[LoggedDemonstration]:
    """Returns the decisions of finished runs with their advantages, for a training on the window of `setup`.

    Raises:
        NotFoundError: no such run. InputError: it is unfinished, or several jobs decide in it.
        UsageError: it is of another window or of other traces.
    """
    steps: list[LoggedTransition] = []
    gains: list[NDArray[np.float64]] = []
    for run_id in (run_index.find(store, name) for name in run_ids):
        reader = RunReader(run_index.folder(store, run_id))
        require_plans(run_id, from_payload(reader.header()), "a lesson")
        mine = read(run_id, reader.events())
        if not mine or not reader.finished:
            raise InputError(f"{run_id}: needs a finished run with decisions")
        header = from_payload(reader.header())
        _check_window(run_id, header, setup)
        prepared, _ = runner.prepare_rerun(store, header, ())
        steps += mine
        gains.append(_gains(prepared.context.estimator, mine))
    if not steps:
        return []
    whole = np.concatenate(gains)
    advantage = whole - whole.mean()
    pairs = zip(steps, advantage.tolist(), strict=True)
    return [LoggedDemonstration(step.view, step.decision.plan, better) for step, better in pairs]


def digests(store: Path, run_ids: Sequence[str]) -> list[str]:
    """Returns the digests of the runs, in order, which identify the demonstrations.

    Raises:
        NotFoundError: no such run.
    """
    return [RunReader(run_index.folder(store, run_index.find(store, name))).digest() for name in run_ids]


def _check_window(run_id: str, header: Header, setup: PreparedScenario) -> None:
    own, wanted = header.world["traces"]["source"], setup.trace_digest
    if header.window == setup.window and own == wanted:
        return
    raise UsageError(
        f"{run_id}: not a run to learn from: it is on the {header.window} window of "
        f"{header.world['dataset']} ({own[:12]}), training is on the {setup.window} window of "
        f"{setup.dataset} ({wanted[:12]}); make one with twin replay --window {setup.window} on the data set "
        "that is trained on"
    )


def _gains(estimator: Estimator, steps: Sequence[LoggedTransition]) -> NDArray[np.float64]:
    """Tokens of each decision and the `AHEAD` from it on, over those of the static plan, less one."""
    base = equal_cuts(estimator, range(estimator.cluster.size), [d.gpus for d in estimator.cluster.domains])
    usual = evaluation.modelled_tokens(estimator, steps, [(base, base)] * len(steps))
    tokens = np.array([step.tokens for step in steps], dtype=np.float64)
    ends = np.minimum(np.arange(len(steps)) + AHEAD, len(steps))
    sums = [np.concatenate([[0.0], np.cumsum(values)]) for values in (tokens, usual)]
    done, expected = (total[ends] - total[:-1] for total in sums)
    result: NDArray[np.float64] = np.where(expected > 0, done / np.maximum(expected, 1.0) - 1.0, 0.0)
    return result
