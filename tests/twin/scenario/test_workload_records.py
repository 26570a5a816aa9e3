"""Faults, jobs and step times of the lake, in the terms of the world."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ingest.core.errors import NotFoundError
from ingest.core.units import NS_PER_S, to_ns
from ingest.pipeline.ingest import ingest
from tests.support.accounts import problems
from tests.support.plays import hold, of_type, plan_over, play
from tests.support.worlds import toy_scenario, toy_wan
from twin.scenario import workload_records
from twin.scenario.fault_timeline import Fault
from twin.scenario.prepare import PreparedScenario, assemble
from twin.settings.disturbances import FaultTrace
from twin.settings.scenario_file import Arrivals, Scenario

S = NS_PER_S
FILES = {
    "faults": "ts,host,kind,repaired_ts\n"
    "2024-01-01T00:00:00Z,h1,gpu,2024-01-01T00:01:00Z\n"
    "2024-01-01T00:02:00Z,h3,nic,\n"
    "2024-01-01T00:03:00Z,h2,gpu,2024-01-01T00:03:30Z\n",
    "jobs": "job_id,submit_ts,gpus,duration_s,priority\n"
    "big,2024-01-01T00:01:40Z,8,100,production\n"
    "small,2024-01-01T00:00:00Z,1,100,\n"
    "first,2024-01-01T00:00:30Z,4,250,best-effort\n"
    "none,2024-01-01T00:00:40Z,4,0,\n",
    "step_times": "job,worker,step,time_s\n"
    + "".join(f"a,w{w},{n},{(w + 1) * (1 + 0.1 * (n % 3))}\n" for w in range(2) for n in range(9)),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with one small data set of each kind."""
    folder = tmp_path_factory.mktemp("records")
    for table, text in FILES.items():
        (folder / f"my-{table}").mkdir()
        (folder / f"my-{table}/rows.csv").write_text(text)
    ingest([folder / f"my-{table}" for table in FILES], folder / "store")
    return folder / "store"


def _setup(store: Path, seconds: float = 600, **scenario: Any) -> PreparedScenario:
    made = toy_scenario(**scenario)
    base = assemble(made, toy_wan(seconds=seconds), window="all")
    return assemble(
        made,
        toy_wan(seconds=seconds),
        window="all",
        filters=base.filters,
        found=workload_records.load(store, made, base.job),
    )


def test_faults_strike_the_domains_that_their_hosts_were_dealt_to(store: Path) -> None:
    setup = _setup(store, fault_trace={"dataset": "my-faults", "repair_s": 200})
    assert setup.measured_faults == (
        Fault(0, "gpu_failed", 0, 4),
        Fault(60 * S, "gpu_repaired", 0, 4),
        Fault(120 * S, "gpu_failed", 2, 4),
        Fault(180 * S, "gpu_failed", 1, 4),
        Fault(210 * S, "gpu_repaired", 1, 4),
        Fault(320 * S, "gpu_repaired", 2, 4),
    )
    facts = play(setup, hold(plan_over(setup, (1,), (34,))))
    assert [(f.sim_ns, f.payload["domain"]) for f in of_type(facts, "gpu_failed")] == [
        (0, 0),
        (120 * S, 2),
        (180 * S, 1),
    ]
    assert problems(setup, facts) == []


def test_kinds_and_the_start_choose_among_the_faults(store: Path) -> None:
    only = _setup(store, fault_trace={"dataset": "my-faults", "kinds": ["gpu"], "from_s": 170})
    assert only.measured_faults == (Fault(10 * S, "gpu_failed", 1, 4), Fault(40 * S, "gpu_repaired", 1, 4))


def test_a_fault_without_repair_lasts_as_long_as_declared() -> None:
    settings = FaultTrace(dataset="x", repair_s=30)
    assert workload_records.faults([(5 * S, "h", None)], settings, [8, 4])[1] == Fault(
        30 * S, "gpu_repaired", 0, 8
    )


def test_jobs_arrive_in_order_with_their_gpu_time_as_work(store: Path) -> None:
    arrivals = {"dataset": "my-jobs", "count": 5, "tokens_per_gpu_s": 2.0, "at_least_gpus": 2}
    setup = _setup(store, arrivals=arrivals | {"urgent": ["production"]})
    told = [(job.name, job.submit_ns, job.priority, job.tokens) for job in setup.jobs]
    assert told == [("first", 0, 0, 2_000), ("big", to_ns(70), 1, 1_600)]
    assert setup.jobs[0].spec == setup.job


def test_arrivals_may_be_spread_and_train_models_by_their_size(store: Path) -> None:
    arrivals = {"dataset": "my-jobs", "count": 3, "tokens_per_gpu_s": 2.0, "spread_s": 40}
    setup = _setup(store, arrivals=arrivals | {"models": {4: "llama2-13b", 8: "llama2-70b"}})
    told = [(job.name, job.submit_ns, job.spec.model.name) for job in setup.jobs]
    assert told == [
        ("small", 0, "llama2-7b"),
        ("first", 12 * S, "llama2-13b"),  # 30 of 100 s
        ("big", 40 * S, "llama2-70b"),
    ]
    assert len({replace(job.spec, model=setup.job.model) for job in setup.jobs}) == 1


def test_arrivals_without_a_job_of_that_size_are_refused() -> None:
    wanted = Arrivals(dataset="x", count=1, tokens_per_gpu_s=1.0)
    assert workload_records.arrivals([("j", 7, 2, 0.1, None)], wanted, None)[0].tokens == 1  # type: ignore[arg-type]


def test_jitter_takes_each_step_over_its_workers_median(store: Path) -> None:
    setup = _setup(store, jitter={"dataset": "my-step_times"})
    assert setup.jitter is not None and len(setup.jitter) == 1001
    assert setup.jitter[[0, 500, 1000]].tolist() == pytest.approx([1 / 1.1, 1.0, 1.2 / 1.1])
    durations = of_type(play(setup, hold(plan_over(setup, (1,), (34,)))), "iteration_done")
    assert len({ns for f in durations for _, ns in f.payload["durations"]}) > 5


def test_what_was_read_is_part_of_the_header(store: Path) -> None:
    setup = _setup(store, jitter={"dataset": "my-step_times"}, fault_trace={"dataset": "my-faults"})
    assert sorted(setup.header()["traces"]) == ["faults", "source", "step_times", "window"]


@pytest.mark.parametrize(
    "named",
    [
        {"jitter": {"dataset": "nowhere"}},
        {"fault_trace": {"dataset": "nowhere"}},
        {"arrivals": {"dataset": "my-jobs", "count": 1, "tokens_per_gpu_s": 1.0, "at_least_gpus": 99}},
    ],
)
def test_rows_that_are_not_there_are_named(store: Path, named: dict[str, Any]) -> None:
    scenario = toy_scenario(**named)
    with pytest.raises(NotFoundError, match="no rows of table"):
        workload_records.load(store, scenario, assemble(toy_scenario(), toy_wan(), window="all").job)


def test_jobs_come_from_one_place_and_have_names_of_their_own() -> None:
    both: dict[str, Any] = {
        "jobs": [{"name": "a"}],
        "arrivals": {"dataset": "x", "count": 1, "tokens_per_gpu_s": 1.0},
    }
    with pytest.raises(ValidationError, match="not from both"):
        toy_scenario(**both)
    with pytest.raises(ValidationError, match="twice"):
        toy_scenario(jobs=[{"name": "a"}, {"name": "a"}])


def test_a_scenario_that_names_nothing_opens_no_lake() -> None:
    scenario: Scenario = toy_scenario()
    found = workload_records.load(Path("nowhere"), scenario, assemble(scenario, toy_wan(), window="all").job)
    assert found == workload_records.NO_RECORDS
