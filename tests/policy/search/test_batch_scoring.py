"""Compiled times of many plans against the Estimator, plan by plan."""

from dataclasses import replace

import numpy as np
import pytest

from policy.search.batch_scoring import OptionRows, Scorer, concatenated, row_of
from policy.search.closed_form import closed_form_s, hill_climb, tables
from policy.search.plan_search import build
from tests.support.cases import cluster, every_cut, every_shape, links, model, random_case, shape_of
from twin.core.adapters import Adapters
from twin.core.domain import LinkState
from twin.core.experts import Experts
from twin.core.job import JobSpec
from twin.core.plan import Schedule
from twin.core.switches import Switches
from twin.estimation.estimator import DEAD, Estimator

Case = tuple[Estimator, LinkState]


def free(estimator: Estimator) -> tuple[int, ...]:
    return tuple(domain.gpus for domain in estimator.cluster.domains)


def every_row(estimator: Estimator, most: int, rng: np.random.Generator) -> OptionRows:
    """Up to `most` plans of all shapes and cuts, at random."""
    options, found = tables(estimator, free(estimator)).options, []
    shapes = list(every_shape(estimator, free(estimator)))
    for n in rng.permutation(len(shapes))[:most].tolist():
        cuts = every_cut(estimator.n_layers, shapes[n])
        if len(cuts):
            row = row_of(options, build(estimator, shapes[n], cuts[int(rng.integers(len(cuts)))]))
            assert row is not None
            found.append(row)
    return concatenated(found)


def exact(case: Case, rows: OptionRows, slowdown: np.ndarray | None) -> list[int]:
    estimator, state = case
    options, found = tables(estimator, free(estimator)).options, []
    for row in range(len(rows)):
        plan = build(estimator, rows.shape(options, row), rows.cuts(row))
        legal = not estimator.problems(plan)
        found.append(estimator.iter_ns(plan, state, slowdown) if legal else DEAD)
    return found


def large(schedule: Schedule = "1f1b", zero: int = 1, tied: bool = False, **job: object) -> Case:
    """Three unlike domains with deep shares and a model that fills them."""
    rng, made = np.random.default_rng(zero), replace(model(60), tied=tied)
    spec = JobSpec(made, 32, (1, 2), schedule=schedule, zero=zero, **job)  # type: ignore[arg-type]
    return Estimator(cluster(3, [8, 4, 6]), spec), links(3, rng)


@pytest.mark.parametrize("seed", range(12))
def test_equals_the_estimator_on_random_plans(seed: int) -> None:
    case, rng = random_case(seed), np.random.default_rng(seed)
    rows = every_row(case[0], 60, rng)
    slowdown = rng.uniform(1.0, 1.5, case[0].cluster.size) if seed % 2 else None
    scorer = Scorer(case[0], tables(case[0], free(case[0])).options, case[1], slowdown)
    assert scorer.iter_ns(rows).tolist() == exact(case, rows, slowdown)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "crosspipe", "zb-h1"])
@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
def test_equals_the_estimator_under_every_schedule(schedule: Schedule, p2p: str) -> None:
    case = large(schedule, p2p=p2p)
    rows = every_row(case[0], 40, np.random.default_rng(1))
    scorer = Scorer(case[0], tables(case[0], free(case[0])).options, case[1])
    assert scorer.iter_ns(rows).tolist() == exact(case, rows, None)


@pytest.mark.parametrize(
    "job",
    [
        {"zero": 3},
        {"zero": 0, "recompute": "none"},
        {"extra_warmup": 2},
        {"tied": True},
        {"context_parallel": 2, "switches": Switches(context_exchange="all-gather")},
        {"sequence_parallel": True, "switches": Switches(False, "bf16", tp_overlap=True)},
    ],
)
def test_equals_the_estimator_for_other_jobs(job: dict[str, object]) -> None:
    case = large(**job)  # type: ignore[arg-type]
    rows = every_row(case[0], 40, np.random.default_rng(2))
    scorer = Scorer(case[0], tables(case[0], free(case[0])).options, case[1])
    times = scorer.iter_ns(rows).tolist()
    assert times == exact(case, rows, None)
    assert DEAD in times and min(times) < DEAD


@pytest.mark.parametrize("zero", [0, 3])
def test_equals_the_estimator_for_adapters(zero: int) -> None:
    spec = JobSpec(replace(model(60), adapters=Adapters(16)), 32, (1, 2), zero=zero)
    case = Estimator(cluster(3, [8, 4, 6]), spec), links(3, np.random.default_rng(zero))
    rows = every_row(case[0], 40, np.random.default_rng(4))
    times = Scorer(case[0], tables(case[0], free(case[0])).options, case[1]).iter_ns(rows).tolist()
    assert times == exact(case, rows, None) and min(times) < DEAD


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_equals_the_estimator_for_a_mixture_of_experts(zero: int) -> None:
    """Sizes with ep 1 and 2 stand side by side."""
    mixture = replace(model(30), experts=Experts(4, 2, 2752, every=2))
    spec = JobSpec(mixture, 32, (1, 2), zero=zero, ep=(1, 2))
    case = Estimator(cluster(3, [8, 4, 6]), spec), links(3, np.random.default_rng(zero))
    rows = every_row(case[0], 40, np.random.default_rng(3))
    options = tables(case[0], free(case[0])).options
    assert {(size.dp, size.ep) for size in options.sizes} >= {(1, 1), (2, 1), (2, 2)}
    times = Scorer(case[0], options, case[1]).iter_ns(rows).tolist()
    assert times == exact(case, rows, None)
    assert DEAD in times and min(times) < DEAD


@pytest.mark.parametrize("schedule", ["gpipe", "crosspipe"])
def test_logits_of_all_micro_batches_in_flight_decide_what_fits(schedule: Schedule) -> None:
    small, state = large(schedule)
    vocabulary = replace(small.job.model, vocab=400_000)  # 0.4 GB of logits a micro-batch
    estimator = Estimator(small.cluster, replace(small.job, model=vocabulary))
    known = tables(estimator, free(estimator))
    scorer = Scorer(estimator, known.options, state)
    rows = every_row(estimator, 150, np.random.default_rng(8))
    times = scorer.iter_ns(rows).tolist()
    assert times == exact((estimator, state), rows, None)
    assert times.count(DEAD) > len(times) // 10 and min(times) < DEAD
    if schedule == "gpipe":
        finite = np.isfinite(closed_form_s(scorer, known, rows)).tolist()
        assert finite == [ns != DEAD for ns in times]


def test_a_dead_link_is_dead_and_caps_of_domains_count() -> None:
    estimator, state = random_case(4, size=3)
    bandwidth = state.bandwidth_bps.copy()
    bandwidth[0, 1] = 0.0
    case = estimator, LinkState(bandwidth, state.latency_s)
    rows = every_row(estimator, 80, np.random.default_rng(3))
    times = Scorer(estimator, tables(estimator, free(estimator)).options, case[1]).iter_ns(rows).tolist()
    assert times == exact(case, rows, None)
    for order, ns in zip(rows.domain.tolist(), times, strict=True):
        if [0, 1] in (order[:2], order[1:]) or [1, 0] in (order[:2], order[1:]):
            assert ns == DEAD


def test_a_plan_with_other_sizes_than_are_offered_has_no_row() -> None:
    estimator, _ = random_case(0, size=2)
    shape = next(iter(every_shape(estimator, free(estimator))))
    plan = build(estimator, shape, every_cut(estimator.n_layers, shape)[0])
    options = tables(estimator, free(estimator)).options
    row = row_of(options, plan)
    assert (
        row is not None
        and row.shape(options, 0) == replace(shape_of(plan), ep=1)
        and row.cuts(0) == plan.cuts
    )
    assert row_of(tables(estimator, (0, 0)).options, plan) is None


def test_the_closed_form_is_near_the_exact_time_and_climbing_never_loses() -> None:
    estimator, state = large()
    known = tables(estimator, free(estimator))
    scorer = Scorer(estimator, known.options, state)
    rows = every_row(estimator, 400, np.random.default_rng(5))
    seconds, ns = closed_form_s(scorer, known, rows), scorer.iter_ns(rows)
    assert np.array_equal(np.isfinite(seconds), ns != DEAD)
    runs = ns != DEAD
    ratio = seconds[runs] * 1e9 / ns[runs]
    assert 0.97 < np.median(ratio) < 1.03 and np.quantile(np.abs(ratio - 1), 0.9) < 0.1
    better, moved = hill_climb(scorer, known, rows)
    assert (better[runs] <= seconds[runs]).all() and (better[runs] < seconds[runs]).any()
    assert np.array_equal(np.isfinite(better), scorer.iter_ns(moved) != DEAD)
    assert (moved.layers.sum(axis=1) == estimator.n_layers).all()
