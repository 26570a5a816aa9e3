"""What a policy would have earned, from the logs of another one, without running it.

A logged run is a path s_0, a_0, r_0, s_1, ... : views, plans put in force, tokens trained until the next
decision. The links do not depend on what is decided (one job), so all that a decision changes is the plan.
With b the policy that was logged, p the one asked about and w_t = prod_{u<=t} p(a_u|s_u) / b(a_u|s_u):

* `model`: the direct method. p's own course through the logged views, paid by the twin's iteration-time
  model under the telemetry that followed: V = sum_t m_t(p). Biased as the model is.
* `is`: per-decision importance sampling (Precup, Sutton, Singh 2000): V = mean over runs of sum_t w_t r_t.
  Unbiased, of large variance; needs b > 0 wherever p > 0.
* `wis`: weighted: sum_t (sum_i w_it r_it) / (sum_i w_it). Biased by order 1/n, of far smaller variance.
* `dr`: doubly robust (Dudik et al. 2011; Jiang and Li 2016): V = model + mean_i sum_t w_it (r_it - m_it).
  Because only the plan depends on decisions, the recursion over values collapses to this control variate.
* `matched`: the same with w of a step 1 where the logged plans before and after it are p's own, averaged
  over such runs. It also uses what a log says after the two have parted and met again.

Where b is deterministic, p leaves it at some decision for good or for a while: `is` and `wis` say nothing
from there on (they are given as None), `dr` goes on with the model alone, `matched` where they meet again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.errors import InputError
from ingest.progress import SILENT, Progress
from ingest.units import NS_PER_S, to_ns
from replay import champion, runner, runs
from replay.episodes import PROBABILITIES, Step, distribution, key, read
from replay.header import Header, code_version, from_payload
from replay.log import RunReader
from replay.scripted import Answers
from twin.estimate import DEAD, Estimator
from twin.plan import Plan
from twin.seeds import generator

Json = dict[str, Any]
Float = NDArray[np.float64]
Move = tuple[Plan | None, Plan | None]
"""The plans before and after a decision."""
NEVER = 2**62
RESAMPLES = 2000
ENOUGH = 5
"""Runs from which on an interval is given."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """What estimation needs of one run; arrays over its T decisions."""

    reward: Float  # tokens logged
    model: Float  # tokens that the model gives the logged plans
    target: Float  # tokens that the model gives the course of the policy asked about
    ratio: Float  # p(a|s) / b(a|s) of the logged plans
    same: NDArray[np.bool_]  # the logged plans before and after are those of that course
    open: NDArray[np.bool_]  # b puts in force, with some probability, whatever p might here

    @property
    def weight(self) -> Float:
        """w_t."""
        return np.asarray(np.cumprod(self.ratio), dtype=np.float64)

    @property
    def covered(self) -> bool:
        """Nothing that p does on the way is impossible under b."""
        alive = np.concatenate([[1.0], self.weight[:-1]]) > 0
        return bool(np.all(self.open[alive]))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens of a run under the policy asked about; `tokens` is None where the logs cannot say."""

    method: str
    tokens: float | None
    low: float | None = None  # 95 % bootstrap over runs
    high: float | None = None


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
                plan, moved_ns, ready_ns = answer, now_ns, now_ns + pause_ns
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
            ns = estimator.iter_ns(plan, seen, step.view.slowdown)
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


def interval(method: str, paths: Sequence[Course]) -> Estimate:
    """One estimate with its 95 % bootstrap interval over runs, from `ENOUGH` runs on."""
    value = METHODS[method](paths)
    if value is None or len(paths) < ENOUGH:
        return Estimate(method, value)
    rng = generator(0, f"offpolicy/{method}")
    samples = rng.integers(len(paths), size=(RESAMPLES, len(paths)))
    drawn = [METHODS[method]([paths[i] for i in sample]) for sample in samples]
    low, high = np.quantile([v for v in drawn if v is not None] or [value], [0.025, 0.975])
    return Estimate(method, value, float(low), float(high))


def direct(paths: Sequence[Course]) -> float | None:
    """The model's word alone."""
    return float(np.mean([one.target.sum() for one in paths]))


def importance(paths: Sequence[Course]) -> float | None:
    """Per-decision importance sampling; None where the logged policy never does what this one does."""
    if not all(one.covered for one in paths):
        return None
    return float(np.mean([one.weight @ one.reward for one in paths]))


def weighted(paths: Sequence[Course]) -> float | None:
    """The same with weights that sum to one at each decision; None where no path reaches the end."""
    if not all(one.covered for one in paths):
        return None
    total = 0.0
    for t in range(max(len(one.reward) for one in paths)):
        there = [one for one in paths if t < len(one.reward)]
        weights = np.array([one.weight[t] for one in there])
        if not weights.sum() > 0:
            return None
        share = len(there) / len(paths)
        total += share * float(weights @ [one.reward[t] for one in there]) / float(weights.sum())
    return total


def doubly_robust(paths: Sequence[Course]) -> float | None:
    """The model, put right by what the logs say of it."""
    return float(np.mean([one.target.sum() + one.weight @ (one.reward - one.model) for one in paths]))


def matched(paths: Sequence[Course]) -> float | None:
    """The model, put right wherever a log passes through the same plans."""
    total = float(np.mean([one.target.sum() for one in paths]))
    for t in range(max(len(one.reward) for one in paths)):
        there = [one for one in paths if t < len(one.reward)]
        errors = [one.reward[t] - one.model[t] for one in there if one.same[t]]
        if errors:
            total += float(np.mean(errors)) * len(there) / len(paths)
    return total


METHODS = {
    "model": direct,
    "is": importance,
    "wis": weighted,
    "dr": doubly_robust,
    "matched": matched,
}
"""Name -> estimate from paths."""
