"""What a policy would have earned, from the logs of another one, without running it.

A logged run is a path s_0, a_0, r_0, s_1, ... : views, plans put in force, tokens trained until the next
decision. The links do not depend on what is decided (one job), so all that a decision changes is the plan.
From each path comes a course: what was earned, what the twin's iteration-time model gives the logged plans
and those of the policy asked about, how likely both were. `replay.offpolicy_methods` estimates from courses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import InputError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S, to_ns
from policy.core import registry
from policy.control.relayed_times import time_ns
from replay.store import checkpoint_registry as champion, run_index as runs
from replay.run import runner
from replay.offpolicy.trajectories import PROBABILITIES, Step, distribution, key, read
from replay.store.run_header import Header, code_version, from_payload
from replay.log.run_log import RunReader
from replay.offpolicy.estimators import METHODS, Course, Estimate, Float, interval
from replay.run.scripted_decisions import Answers
from twin.estimate.estimator import DEAD, Estimator
from twin.costs.migration import needs_restart
from twin.core.plan import Plan

Json = dict[str, Any]
Move = tuple[Plan | None, Plan | None]
"""The plans before and after a decision."""
NEVER = 2**62


@dataclass(frozen=True, slots=True)
class OffPolicy:
    """All estimates, and how far the logs reach."""

    run_ids: tuple[str, ...]
    policy: str
    logged: float  # mean tokens of the logged runs
    decisions: int
    deterministic: bool  # nothing in the logs was drawn
    reaches: float  # share of the decisions up to which a log and the policy agree, mean over runs
    matched: float  # share of the decisions whose plans before and after are the policy's own in some run
    effective_runs: float  # (sum w)^2 / sum w^2 of the whole paths
    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...]

    def of(self, method: str) -> Estimate:
        """The estimate of that name."""
        return next(estimate for estimate in self.estimates if estimate.method == method)

    def to_json(self) -> Json:
        """The object of `twin offpolicy --json`."""
        own = {name: getattr(self, name) for name in self.__slots__ if name not in ("run_ids", "estimates")}
        return {
            "schema": "twin.offpolicy/1",
            "runs": list(self.run_ids),
            **own,
            "notes": list(self.notes),
            "estimates": [{name: getattr(e, name) for name in e.__slots__} for e in self.estimates],
        }


def estimate(
    store: Path, run_ids: Sequence[str], policy: str, *, checkpoint: str | None = None,
    progress: Progress = SILENT,
) -> OffPolicy:  # fmt: skip
    """Estimate the tokens of `policy` in the worlds of finished runs, from their logs.

    Raises:
        NotFoundError: no such run, data set or checkpoint. UsageError: no such policy.
        InputError: a run is unfinished, made no decision, or several jobs decide in it.
        InfeasibleError: the policy cannot start.
    """
    registry.entry(policy)
    progress.start(len(run_ids), "logs")
    paths, notes = [], []
    drawn = False
    for run_id in run_ids:
        reader = RunReader(runs.folder(store, run_id))
        steps = read(run_id, reader.events())
        if not steps or not reader.finished:
            raise InputError(f"{run_id}: needs a finished run with decisions")
        drawn |= any(PROBABILITIES in step.decision.extra for step in steps)
        header = from_payload(reader.header())
        if dict(header.code) != code_version():
            notes.append(f"{run_id} was made by other code")
        asked = replace(
            header, policy=policy, checkpoint=champion.resolve(store, policy, checkpoint), branch=None
        )
        paths.append(course_of(store, asked, steps))
        progress.advance()
    return summary(tuple(run_ids), policy, paths, drawn, tuple(notes))


def course_of(store: Path, asked: Header, steps: Sequence[Step]) -> Course:
    """The arrays of one run for the policy that `asked` names."""
    estimator, answers = _asked(store, asked)
    ratio, possible = [], []
    for number, step in enumerate(steps):  # what the policy would answer to the views as they were
        ours = distribution(answers.answer(number, step.view)[0], step.view)
        theirs = distribution(step.decision, step.view)
        ratio.append(ours.get(key(step.after), 0.0) / theirs[key(step.after)])
        possible.append(all(theirs.get(plan, 0.0) > 0 for plan, chance in ours.items() if chance > 0))
    course = follow(*_asked(store, asked), steps)
    moves = list(zip([None, *course[:-1]], course, strict=True))
    logged = [(step.view.plan, step.after) for step in steps]
    return Course(
        reward=np.array([step.tokens for step in steps], dtype=np.float64),
        model=earned(estimator, steps, logged),
        target=earned(estimator, steps, moves),
        ratio=np.array(ratio),
        same=np.array([ours == theirs for ours, theirs in zip(moves, logged, strict=True)]),
        open=np.array(possible),
    )


def _asked(store: Path, header: Header) -> tuple[Estimator, Answers]:
    """The cost models of a run, and its policy at the start."""
    stage, _ = runner.restage(store, header, ())
    return stage.context.estimator, stage.coordinator


def follow(estimator: Estimator, answers: Answers, steps: Sequence[Step]) -> list[Plan | None]:
    """The plans that the policy puts in force when it sees the logged links, and its own plan in them.

    While a move of its own lasts it is not asked, as in the world; the next decision that was logged is its
    next one.
    """
    plans: list[Plan | None] = []
    plan: Plan | None = None
    moved_ns = ready_ns = 0
    for number, step in enumerate(steps):
        now_ns = step.view.now_ns
        if now_ns >= ready_ns:
            since_s = (now_ns - moved_ns) / NS_PER_S
            same = plan == step.view.plan
            own = step.view if same else replace(step.view, plan=plan, since_move_s=since_s)
            answer = answers.answer(number, own)[0].plan
            if answer is not None and answer != plan:
                pause_ns = 0 if plan is None else _pause_ns(estimator, step, plan, answer)
                moved_ns = now_ns if plan is None or needs_restart(plan, answer) else moved_ns
                plan, ready_ns = answer, now_ns + pause_ns
        plans.append(plan)
    return plans


def earned(estimator: Estimator, steps: Sequence[Step], moves: Sequence[Move]) -> Float:
    """Tokens that the model gives each step: what is left of a move first, then iterations at the pace of
    the telemetry. A move may last beyond the next decision."""
    ready_ns, tokens = 0, []
    for step, (before, after) in zip(steps, moves, strict=True):
        if after is not None and before not in (None, after):
            ready_ns = max(ready_ns, step.view.now_ns + _pause_ns(estimator, step, before, after))
        tokens.append(_trained(estimator, step, after, ready_ns) if after is not None else 0.0)
    return np.array(tokens)


def _pause_ns(estimator: Estimator, step: Step, before: Plan | None, after: Plan) -> int:
    """How long the move is expected to take, restart included."""
    links = step.view.forecast.links()
    seconds = estimator.move(before, after, links).seconds
    return to_ns(seconds) if np.isfinite(seconds) else NEVER


def _trained(estimator: Estimator, step: Step, plan: Plan, ready_ns: int) -> float:
    edges = [(step.view.now_ns, step.view.forecast.links()), *step.ticks]
    ends = [*(at for at, _ in step.ticks), step.end_ns]
    iterations = 0.0
    for (since, seen), until in zip(edges, ends, strict=True):
        length = until - max(since, ready_ns)
        if length > 0:
            ns = time_ns(estimator, plan, seen, step.view.slowdown)
            iterations += 0.0 if ns == DEAD else length / ns
    return iterations * estimator.tokens_per_iteration


def summary(
    run_ids: tuple[str, ...], policy: str, paths: Sequence[Course], drawn: bool, notes: tuple[str, ...]
) -> OffPolicy:
    """Every estimate over the paths, with intervals where there are runs enough."""
    weights = np.array([one.weight[-1] for one in paths])
    square = float(np.sum(weights**2))
    longest = max(len(one.reward) for one in paths)
    met = [any(t < len(one.same) and one.same[t] for one in paths) for t in range(longest)]
    said = list(notes)
    if not drawn:
        said.append(
            "nothing in the logs was drawn: importance sampling reaches as far as the policies agree, beyond "
            "that only the model speaks"
        )
    elif not all(one.covered for one in paths):
        said.append("the policy does what the logged one never would: importance sampling cannot say")
    return OffPolicy(
        run_ids=run_ids,
        policy=policy,
        logged=float(np.mean([one.reward.sum() for one in paths])),
        decisions=sum(len(one.reward) for one in paths),
        deterministic=not drawn,
        reaches=float(np.mean([np.mean(one.weight > 0) for one in paths])),
        matched=float(np.mean(met)),
        effective_runs=float(np.sum(weights)) ** 2 / square if square else 0.0,
        estimates=tuple(interval(method, paths) for method in METHODS),
        notes=tuple(said),
    )
