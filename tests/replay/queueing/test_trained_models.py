"""Jobs that train models: starts that run out of memory are events, cost time, and are audited."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import UsageError
from ingest.pipeline.ingest import ingest
from replay.audit import rerun
from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.logqueue import whatif
from replay.logqueue.comparison import QueueComparison
from replay.queueing import scenario_run
from replay.sql.query import query
from replay.store import run_index
from tests.support import queue_log
from twin.settings.job_queue import LoggedJobs, QueueScenario, TrainedModels

TIGHT = TrainedModels(models={"gpt2-1.5b": 3, "llama2-7b": 1}, margin=0.0, failure_s=60)
"""Without a margin many jobs fail."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    ingest([queue_log.TARGET], folder)
    return folder


@pytest.fixture(scope="module")
def kept(store: Path) -> QueueComparison:
    return played(store, TIGHT, keep=True)


def played(store: Path, trained: TrainedModels | None, *, keep: bool = False) -> QueueComparison:
    scenario = QueueScenario(
        name="mine", jobs=LoggedJobs(dataset="examples", thin=0.5), processors=64, trained=trained
    )
    found = scenario_run.replay(store, scenario, ["easy"], keep=keep)
    assert isinstance(found, QueueComparison)
    return found


def test_each_failure_is_an_event_and_its_time_is_part_of_the_run(store: Path, kept: QueueComparison) -> None:
    alone = played(store, None).log.jobs
    failed, jobs = kept.log.failed, kept.log.jobs
    assert 0 < len(failed) < len(jobs)
    longer = jobs.run_ns > alone.run_ns
    assert {int(one) for one in jobs.number[longer]} == set(failed)
    assert (jobs.run_ns[longer] - alone.run_ns[longer] >= 60 * 10**9).all()
    run_id = kept.runs["easy"]
    events = [
        one for one in RunReader(run_index.folder(store, run_id)).events() if one.type == "job_out_of_memory"
    ]
    # a job that is cut at its estimate may end before its failure
    assert 0 < len(events) <= sum(map(len, failed.values()))
    assert all(one.payload["needed_bytes"] > one.payload["gpu_bytes"] for one in events)
    counted = query(store, f"select sum(out_of_memory) from queue_jobs where run = '{run_id}'")
    assert counted.column(0).to_pylist() == [len(events)]
    assert any("ran out of memory first" in note for note in kept.log.notes)


def test_a_run_with_failures_is_audited_and_made_again(store: Path, kept: QueueComparison) -> None:
    run_id = kept.runs["easy"]
    assert audit(store, run_id).ok
    assert rerun.recompute(store, run_id).equal
    assert whatif.what_if(store, run_id, "saf").other["jobs"] == len(kept.log.jobs)


def test_a_margin_takes_the_failures_away(store: Path, kept: QueueComparison) -> None:
    roomy = played(store, TIGHT.model_copy(update={"margin": 0.25}))
    assert not roomy.log.failed
    assert np.array_equal(roomy.log.jobs.number, kept.log.jobs.number)


def test_models_too_large_for_a_job_and_machines_without_a_pool_are_refused(store: Path) -> None:
    with pytest.raises(UsageError, match="none of llama2-70b fits on 1 x A100-80"):
        played(store, TrainedModels(models={"llama2-70b": 1}))
    with pytest.raises(ValueError, match="on one pool; say `processors`"):
        QueueScenario(name="mine", jobs=LoggedJobs(dataset="examples"), nodes="8 x 8 A100-80", trained=TIGHT)
