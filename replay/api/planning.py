"""Answers without a replay: the cost of given plans, and the best plans of a scenario."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from ingest.core.errors import InfeasibleError
from ingest.core.units import NS_PER_S
from policy.search.plan_search import best_plans
from replay.api.running import scenario_of, store_of
from replay.api.store import PathLike, Store
from twin.cases import table_answers
from twin.cases.answer import Answer, answer
from twin.cases.resolve import resolve
from twin.cases.table_answers import CaseAnswers
from twin.cases.table_reader import cells_of
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.iteration_estimate import IterationEstimate
from twin.scenario.prepare import Scenario, prepare
from twin.traces import measured_links
from twin.traces.link_quantiles import quantile_state


@dataclass(frozen=True, slots=True)
class RankedPlan:
    """A plan with its predicted cost under the link state that it was searched for."""

    plan: Plan
    iteration_s: float
    tokens_per_s: float
    estimate: IterationEstimate


@overload
def estimate(cases: PathLike, *, store: Store | PathLike | None = None) -> CaseAnswers: ...
@overload
def estimate(cases: Mapping[str, Any], *, store: Store | PathLike | None = None) -> Answer: ...
@overload
def estimate(
    cases: Sequence[Mapping[str, Any]], *, store: Store | PathLike | None = None
) -> list[Answer]: ...
def estimate(
    cases: PathLike | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    store: Store | PathLike | None = None,
) -> CaseAnswers | Answer | list[Answer]:
    """Time, memory, utilisation, traffic, money and energy of one iteration of each case.

    A case maps columns of docs/guides/estimate.md to values, such as `{"layers": 80, "gpus": 64, "tp":
    8}`; a path is a CSV or YAML table, whose bad rows are listed in `failures`. The constants are those
    of the latest calibration of the store, else the built-in ones.

    Raises:
        UsageError: an unknown column. InputError: a cell or file cannot be read, or cells contradict each
        other.
    """
    constants = table_answers.constants_of(store_of(store).path)
    if isinstance(cases, str | os.PathLike):
        return table_answers.estimate(Path(cases), constants)
    if isinstance(cases, Mapping):
        return answer(resolve(cells_of(cases)), constants)
    return [answer(resolve(cells_of(case)), constants) for case in cases]


def plan(
    scenario: str | Scenario = "tri-7b",
    *,
    store: Store | PathLike | None = None,
    dataset: str | None = None,
    links: float | LinkState = 0.5,
    top: int = 3,
) -> list[RankedPlan]:
    """The `top` fastest plans of a scenario under one link state, the fastest first.

    `links` is a quantile of each link's recorded bandwidth (0.1: what it exceeds nine tenths of the time) or
    a `LinkState`, (K, K) in bit/s and s.

    Raises:
        NotFoundError: the lake lacks the data set. InfeasibleError: no plan fits.
    """
    chosen, target = scenario_of(scenario), store_of(store)
    setup = prepare(chosen, target.path, dataset=dataset)
    if not isinstance(links, LinkState):
        wan = chosen.wan if dataset is None else chosen.wan.replaced(dataset)
        links = quantile_state(measured_links.load(target.path, wan, chosen.domains), links)
    estimator = setup.estimator()
    gpus = [domain.gpus for domain in setup.cluster.domains]
    found = best_plans(estimator, links, free_gpus=gpus, top=top)
    if not found:
        raise InfeasibleError(f"{chosen.name}: no plan fits the memory of its GPUs under these links")
    return [
        RankedPlan(
            plan, ns / NS_PER_S, estimator.tokens(plan) * NS_PER_S / ns, estimator.iteration(plan, links)
        )
        for plan, ns in found
    ]
