"""The queue of a scenario: replayed, audited, computed again, compared over loads and seeds."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.pipeline.ingest import ingest
from replay.audit import rerun
from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.logqueue import comparison, logged_nodes, logged_run, waiting, whatif
from replay.logqueue.comparison import QueueComparison
from replay.logqueue.on_nodes import NodeComparison
from replay.queueing import bench, scenario_run
from replay.report import page
from replay.sql.query import query
from replay.store import run_index
from tests.support import queue_log
from twin.settings.job_queue import Between, LoggedJobs, NodeOutageSettings, QueueScenario
from twin.traces.time_range import TimeRange

S = 10**9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("queue")
    ingest([queue_log.TARGET], folder)
    return folder


def queue(**jobs: object) -> QueueScenario:
    return QueueScenario(name="mine", jobs=LoggedJobs(dataset="examples", **jobs), processors=64)


def on_pool(store: Path, scenario: QueueScenario, *policies: str, keep: bool = False) -> QueueComparison:
    found = scenario_run.replay(store, scenario, policies, keep=keep)
    assert isinstance(found, QueueComparison)
    return found


def test_the_lake_gives_the_schedule_of_the_file(store: Path) -> None:
    mine = on_pool(store, queue(), "easy").figures["easy"]
    assert mine == comparison.compare(queue_log.TARGET, ["easy"]).figures["easy"]


def test_parts_of_a_log_are_its_whole(store: Path) -> None:
    parts = [on_pool(store, queue(window=one)).log.jobs for one in ("train", "validate", "test")]
    assert sum(map(len, parts)) == 400
    early = on_pool(store, queue(window=Between(from_s=0, to_s=1000))).log.jobs
    assert len(early) and early.submit_ns.max() < 1000 * S


def test_a_run_of_synthetic_arrivals_says_so_and_is_audited(store: Path) -> None:
    scenario = queue(arrivals="poisson", load=1.2, thin=0.5)
    found = on_pool(store, scenario, "easy", keep=True)
    run_id = found.runs["easy"]
    header = RunReader(run_index.folder(store, run_id)).header()
    assert "SYNTHETIC arrivals: poisson" in header["note"] and found.synthetic
    assert header["scenario"]["settings"]["jobs"]["load"] == 1.2
    assert audit(store, run_id).ok
    assert rerun.recompute(store, run_id).equal and rerun.recompute(store, run_id, until_s=9e4).equal
    assert any("SYNTHETIC" in note for note in found.to_json()["notes"])
    assert "SYNTHETIC" in page.render(store, run_id)


def test_another_scheduler_on_the_jobs_of_a_run(store: Path) -> None:
    base = on_pool(store, queue(), "fcfs", keep=True).runs["fcfs"]
    found = whatif.what_if(store, base, "easy")
    direct = on_pool(store, queue(), "easy").figures["easy"]
    assert found.other == direct.to_json() and found.starts_differ > 0 and found.first_job is not None
    assert found.slowdown_ratio is not None and found.slowdown_ratio.value < 1
    assert found.differences["avg_wait_s"] == direct.avg_wait_s - found.base["avg_wait_s"]
    header = RunReader(run_index.folder(store, found.run_id)).header()
    assert header["branch"]["run"] == base and audit(store, found.run_id).ok
    with pytest.raises(UsageError, match="has the scheduler fcfs itself"):
        whatif.what_if(store, base, "fcfs")


def test_nodes_are_kept_audited_and_explained(store: Path) -> None:
    nodes = "6 x 8 A100-80, 4 x 8 V100"
    scenario = queue().model_copy(update={"processors": None, "nodes": nodes, "placement": "fgd"})
    found = scenario_run.replay(store, scenario, ["easy"])
    assert isinstance(found, NodeComparison)
    run_id = found.runs["easy", "fgd"]
    assert audit(store, run_id).ok and rerun.recompute(store, run_id).equal
    run = logged_run.load(store, run_id)
    assert run.nodes is not None and run.unit == "GPUs" and run.nodes.cluster.describe() == nodes
    late = int(np.argmax(run.schedule.start_ns - run.schedule.jobs.submit_ns))
    one = waiting.explain(store, run_id, run.names.job(int(run.schedule.jobs.number[late])))
    assert one.waited_s > 0 and one.unit == "GPUs" and one.forecast is not None
    held = query(store, f"select sum(processors) as n from queue_jobs where run = '{run_id}'")
    assert int(held.to_pylist()[0]["n"]) == run.schedule.jobs.processors.sum()
    drawn = page.render(store, run_id)
    assert nodes in drawn and "placement fgd" in drawn and "of no use to the jobs" in drawn
    assert whatif.what_if(store, run_id, "sjf").other["fragmentation"] > 0


def test_outages_of_a_scenario_are_kept_and_drawn_by_its_seed(store: Path) -> None:
    failing = {"processors": None, "nodes": "10 x 8 V100",
               "outages": NodeOutageSettings(mtbf_h=20, mttr_h=2, checkpoint_interval_s=600)}  # fmt: skip
    scenario = queue(window=Between(from_s=0, to_s=40_000)).model_copy(update=failing)
    found = scenario_run.replay(store, scenario, ["fcfs"])
    assert isinstance(found, NodeComparison) and found.to_json()["synthetic_faults"]
    (figures,), (run_id,) = found.figures.values(), found.runs.values()
    header = RunReader(run_index.folder(store, run_id)).header()
    assert header["scenario"]["settings"]["outages"]["mtbf_h"] == 20 and "synthetic" in header["note"]
    assert figures.availability < 1 and audit(store, run_id).ok
    worlds = bench.bench(store, [scenario], ["fcfs"], seeds=2)
    assert worlds.rows[0].worlds == 2 and any("synthetic faults" in note for note in worlds.notes)


def test_outages_of_a_scenario_are_those_of_nodes_and_of_one_source() -> None:
    with pytest.raises(ValueError, match="say `nodes`"):
        QueueScenario(name="x", jobs=LoggedJobs(dataset="a"), processors=4, outages={"mtbf_h": 5})
    with pytest.raises(ValueError, match="and not both"):
        NodeOutageSettings(file="a.csv", mtbf_h=5)
    with pytest.raises(ValueError, match="and not both"):
        NodeOutageSettings()


def test_a_gpu_that_holds_two_jobs_at_once_is_found(store: Path) -> None:
    scenario = queue().model_copy(update={"processors": None, "nodes": "10 x 8 A100-80"})
    found = scenario_run.replay(store, scenario, ["fcfs"])
    assert isinstance(found, NodeComparison)
    done = logged_run.load(store, found.runs["fcfs", "best-fit"]).nodes
    assert done is not None and logged_nodes.overfull(done) == []
    together = replace(done, start_ns=done.start_ns * 0)
    assert "holds 2000 thousandths" in logged_nodes.overfull(together)[0]


def test_commands_change_a_scenario() -> None:
    given = queue(load=2.0)
    cut = TimeRange(60 * S, 120 * S)
    made = scenario_run.changed(given, dataset="a/b.swf", cut=cut, seed=3, load=1.5)
    assert (made.jobs.source, made.jobs.load, made.seed) == ("a/b.swf", 3.0, 3)
    assert made.jobs.window == Between(from_s=60, to_s=120)
    with pytest.raises(UsageError, match="seconds since its first submission"):
        scenario_run.changed(given, cut=TimeRange(datetime(2020, 1, 1, tzinfo=UTC), None))
    with pytest.raises(UsageError, match="is not before"):
        scenario_run.changed(given, cut=TimeRange(120 * S, 60 * S))


def test_loads_and_seeds_are_paired_world_by_world(store: Path) -> None:
    scenario = queue(arrivals="weibull", thin=0.6)
    found = bench.bench(store, [scenario], ["fcfs", "easy"], seeds=3, loads=(0.5, 2.0))
    assert [(one.load, one.policy, one.worlds) for one in found.rows] == [
        (0.5, "fcfs", 3), (0.5, "easy", 3), (2.0, "fcfs", 3), (2.0, "easy", 3),
    ]  # fmt: skip
    first, second = found.rows[:2]
    assert first.over_first is not None and first.over_first.to_json() == [1, 1, 1]
    assert second.over_first is not None and second.over_first.value < 1 and found.synthetic
    assert found.rows[3].avg_wait_s > second.avg_wait_s  # more load, more wait
    with pytest.raises(UsageError, match="every seed gives the same jobs"):
        bench.bench(store, [queue()], ["fcfs"], seeds=2)


def test_worlds_alike_have_no_interval() -> None:
    assert bench.over_worlds([2.0, 2.0]).to_json() == [2.0, 2.0, 2.0]


def test_a_data_set_that_is_not_there_is_named(store: Path) -> None:
    wrong = scenario_run.changed(queue(), dataset="nothing")
    with pytest.raises(NotFoundError, match="twin ingest"):
        scenario_run.replay(store, wrong)
