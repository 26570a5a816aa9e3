"""What would make a plan fit: each remedy does, and one node less does not."""

import re
from typing import Any

from policy.search.plan_search import best_plans
from replay.planning.record import Record
from replay.planning.remedies import remedies
from tests.support.worlds import toy_scenario, toy_setup
from twin.estimation.link_state_times import States


def record(**changes: Any) -> Record:
    setup = toy_setup(2, **changes)
    states = States.of([setup.wan.at(0)])
    return Record(setup.scenario, setup.estimator(), states, None, "toy", "all", 0.0, "")


def fits(made: Record) -> bool:
    return bool(best_plans(made.estimator, made.typical, free_gpus=made.gpus, top=1))


def with_gpus(gpus: int, **job: Any) -> Record:
    cluster = toy_scenario(2).cluster.model_dump()
    cluster["domains"] = [{"name": "d0", "gpus": gpus}, {"name": "d1", "gpus": 4}]
    return record(cluster=cluster, **job)


def test_as_many_gpus_are_named_as_are_enough_and_no_more() -> None:
    large: dict[str, Any] = {
        "model": "llama2-70b",
        "job": {"global_batch": 32, "micro_batches": [1], "zero": 3},
    }
    (words,) = remedies(record(**large))
    found = re.fullmatch(r"(\d+) more A100-80 at d0 \((\d+) in all\)", words)
    assert found is not None and int(found[2]) == 4 + int(found[1])
    assert fits(with_gpus(int(found[2]), **large))
    assert not fits(with_gpus(int(found[2]) - 4, **large))


def test_changes_of_the_job_that_are_enough_alone_come_first_and_no_larger_than_need_be() -> None:
    job = {"global_batch": 128, "micro_batches": [32], "recompute": "none", "zero": 1}
    made = record(model="llama2-13b", job=job)
    assert not fits(made)
    first, second, *rest = remedies(made)
    size = re.fullmatch(r"job\.micro_batches: \[(\d+)\]", first)
    assert size is not None and fits(record(model="llama2-13b", job=job | {"micro_batches": [int(size[1])]}))
    assert not fits(record(model="llama2-13b", job=job | {"micro_batches": [2 * int(size[1])]}))
    recompute = second.removeprefix("job.recompute: ")
    assert fits(record(model="llama2-13b", job=job | {"recompute": recompute}))
    assert any("more A100-80 at d0" in words for words in rest)


def test_changes_that_are_enough_only_together_are_told_as_one() -> None:
    job = {"global_batch": 64, "micro_batches": [4], "recompute": "none", "zero": 0}
    cluster = toy_scenario(2).cluster.model_dump()
    cluster["domains"] = [{"name": name, "gpus": 8} for name in ("d0", "d1")]
    first, *_ = remedies(record(model="llama2-70b", job=job, cluster=cluster))
    assert first == "job.micro_batches: [1] and job.recompute: full and job.zero: 3"
