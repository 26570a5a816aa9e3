"""Off-policy evaluation: tokens that a policy would have trained, from the logs of another one.

A logged run is a trajectory s_0, a_0, r_0, s_1, ...: views, plans put in force, tokens trained until the next
decision. With one job the links do not depend on decisions, so a decision changes the plan alone. Each log
becomes a `Trajectory`: logged tokens, modelled tokens of the logged plans and of those of the target policy,
and probability ratios. `replay.offpolicy.estimators` estimates from trajectories.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import InputError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S, to_ns
from policy.control.relayed_times import time_ns
from policy.core import registry
from replay.log.run_log import RunReader
from replay.offpolicy.estimators import METHODS, Float, OffPolicyEstimate, Trajectory, interval
from replay.offpolicy.trajectories import PROBABILITIES, LoggedTransition, distribution, key, read
from replay.run import runner
from replay.run.scripted_decisions import DecisionSource
from replay.store import checkpoint_registry, run_index
from replay.store.run_header import Header, code_version, from_payload
from replay.store.run_kind import require_plans
from twin.core.plan import Plan
from twin.costs.migration import needs_restart
from twin.estimation.estimator import DEAD, Estimator

Json = dict[str, Any]
Move = tuple[Plan | None, Plan | None]
"""The plans before and after a decision."""
NEVER = 2**62


@dataclass(frozen=True, slots=True)
class OffPolicy:
    """All estimates, and the support of the logs."""

    run_ids: tuple[str, ...]
    policy: str
    logged: float  # mean tokens of the logged runs
    decisions: int
    deterministic: bool  # no logged decision was random
    reaches: float  # share of the decisions up to which a log and the policy agree, mean over runs
    matched: float  # share of the decisions whose plans before and after are the policy's own in some run
    effective_runs: float  # (sum w)^2 / sum w^2 of the whole paths
    estimates: tuple[OffPolicyEstimate, ...]
    notes: tuple[str, ...]

    def of(self, method: str) -> OffPolicyEstimate:
        """Returns the estimate of that name."""
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
    """Estimates the tokens of `policy` in the worlds of finished runs, from their logs.

    Raises:
        NotFoundError: no such run, data set or checkpoint. UsageError: no such policy.
        InputError: a run is unfinished, made no decision, or several jobs decide in it.
        InfeasibleError: the policy cannot start.
    """
    registry.entry(policy)
    progress.start(len(run_ids), "logs", "logs")
    paths, notes = [], []
    drawn = False
    for run_id in run_ids:
        reader = RunReader(run_index.folder(store, run_id))
        require_plans(run_id, from_payload(reader.header()), "an off-policy estimate")
        steps = read(run_id, reader.events())
        if not steps or not reader.finished:
            raise InputError(f"{run_id}: needs a finished run with decisions")
        drawn |= any(PROBABILITIES in step.decision.extra for step in steps)
        header = from_payload(reader.header())
        if dict(header.code) != code_version():
            notes.append(f"{run_id} was made by other code")
        asked = replace(
            header,
            policy=policy,
            checkpoint=checkpoint_registry.resolve(store, policy, checkpoint),
            branch=None,
        )
        paths.append(trajectory_of(store, asked, steps))
        progress.advance()
    return summary(tuple(run_ids), policy, paths, drawn, tuple(notes))


def trajectory_of(store: Path, target: Header, steps: Sequence[LoggedTransition]) -> Trajectory:
    """Returns the trajectory of one run for the policy that the header `target` names."""
    estimator, policy = _target_policy(store, target)
    ratio, possible = [], []
    for number, step in enumerate(steps):  # decisions of the target policy on the logged views
        chosen = distribution(policy.decide(number, step.view)[0], step.view)
        behaviour = distribution(step.decision, step.view)
        ratio.append(chosen.get(key(step.after), 0.0) / behaviour[key(step.after)])
        possible.append(all(behaviour.get(plan, 0.0) > 0 for plan, chance in chosen.items() if chance > 0))
    plans = follow(*_target_policy(store, target), steps)
    moves = list(zip([None, *plans[:-1]], plans, strict=True))
    logged = [(step.view.plan, step.after) for step in steps]
    return Trajectory(
        reward=np.array([step.tokens for step in steps], dtype=np.float64),
        model=modelled_tokens(estimator, steps, logged),
        target=modelled_tokens(estimator, steps, moves),
        ratio=np.array(ratio),
        same=np.array([own == other for own, other in zip(moves, logged, strict=True)]),
        open=np.array(possible),
    )


def _target_policy(store: Path, header: Header) -> tuple[Estimator, DecisionSource]:
    """Returns the cost models of a run and its policy, reset."""
    prepared, _ = runner.prepare_rerun(store, header, ())
    return prepared.context.estimator, prepared.decision_sources[""]


def follow(
    estimator: Estimator, policy: DecisionSource, steps: Sequence[LoggedTransition]
) -> list[Plan | None]:
    """Returns the plans that the policy puts in force on the logged links, one per decision.

    Its views hold its own plan. During a move it does not decide, as in the world; its next decision is the
    next logged one after the move.
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
            chosen = policy.decide(number, own)[0].plan
            if chosen is not None and chosen != plan:
                pause_ns = 0 if plan is None else _pause_ns(estimator, step, plan, chosen)
                moved_ns = now_ns if plan is None or needs_restart(plan, chosen) else moved_ns
                plan, ready_ns = chosen, now_ns + pause_ns
        plans.append(plan)
    return plans


def modelled_tokens(estimator: Estimator, steps: Sequence[LoggedTransition], moves: Sequence[Move]) -> Float:
    """Modelled tokens of each step: the rest of a move first, then iterations at the rate of the telemetry's
    links. A move may last beyond the next decision."""
    ready_ns, tokens = 0, []
    for step, (before, after) in zip(steps, moves, strict=True):
        if after is not None and before not in (None, after):
            ready_ns = max(ready_ns, step.view.now_ns + _pause_ns(estimator, step, before, after))
        tokens.append(_trained(estimator, step, after, ready_ns) if after is not None else 0.0)
    return np.array(tokens)


def _pause_ns(estimator: Estimator, step: LoggedTransition, before: Plan | None, after: Plan) -> int:
    """Expected duration of the move, restart included."""
    links = step.view.forecast.links()
    seconds = estimator.move(before, after, links).seconds
    return to_ns(seconds) if np.isfinite(seconds) else NEVER


def _trained(estimator: Estimator, step: LoggedTransition, plan: Plan, ready_ns: int) -> float:
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
    run_ids: tuple[str, ...], policy: str, paths: Sequence[Trajectory], drawn: bool, notes: tuple[str, ...]
) -> OffPolicy:
    """Returns all estimates over the trajectories, with intervals where there are enough runs."""
    weights = np.array([one.weight[-1] for one in paths])
    square = float(np.sum(weights**2))
    longest = max(len(one.reward) for one in paths)
    met = [any(t < len(one.same) and one.same[t] for one in paths) for t in range(longest)]
    said = list(notes)
    if not drawn:
        said.append(
            "no logged decision was random: importance sampling applies as far as the policies agree, beyond "
            "that only the model does"
        )
    elif not all(one.covered for one in paths):
        said.append(
            "the policy takes actions that the logged one never takes: importance sampling does not apply"
        )
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
