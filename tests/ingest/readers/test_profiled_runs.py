"""Run times from measured profiles, by hand; and on the published lists."""

import json
from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.readers import job_logs
from ingest.readers.clusters.profiled_runs import RunProfiles
from ingest.readers.clusters.swf_log import FIELDS

RUN = FIELDS.index("run_s")
LIST = """name,time,application,num_replicas,batch_size
a,0,toy,12,48
b,5,toy,4,400
c,6,other,4,40
d,7,toy,4,36
"""


def sia(folder: Path) -> Path:
    """Profiles of `toy`: 12 replicas on nodes of 8 are 4 on one and 8 on another."""
    (folder / "toy").mkdir(parents=True)
    rows = "48,2,1.0,0\n48,6,2.0,0\n4,10,3.0,0\n4,50,5.0,0\n"
    (folder / "toy" / "placements-dgx-ext.csv").write_text("placement,local_bsz,step_time,sync_time\n" + rows)
    head = "progress,iteration,metric,grad_sqr,grad_var\n"
    for batch, rest in {48: "1,50,0,0,0\n2,100,0,0,0\n", 400: "1,10,0,0,0\n", 36: "1,7,0,0,0\n"}.items():
        (folder / "toy" / f"validation-{batch}.csv").write_text(head + rest)
    return folder


def test_iterations_of_all_epochs_times_the_step_of_the_placement(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(LIST)
    log = job_logs.read(path, RunProfiles(sia(tmp_path / "profiles")))
    # a: 4 samples a GPU, between 2 and 6; b: 100 a GPU in two parts of 50; c: unknown; d: below the least
    assert log.table[:, RUN].tolist() == [100 * 1.5, 10 * 2 * 5.0, -1, 7 * 3.0]


def test_steps_over_the_rate_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.trace"
    cells = ("M (batch size 8)", "run", "x", "--steps", "1", "600", "2", "1", "-1", "0")
    path.write_text("\t".join(cells) + "\n" + "\t".join(("Z", *cells[1:])) + "\n")
    rates = {"v100": {"('M (batch size 8)', 2)": {"null": 4.0}}}
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(rates))
    assert job_logs.read(path, RunProfiles(tmp_path)).table[:, RUN].tolist() == [150.0, -1]
    with pytest.raises(UsageError, match="has no GPU 'h100'; it has v100"):
        job_logs.read(path, RunProfiles(tmp_path, "h100"))
    (tmp_path / "simulation_throughputs.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        job_logs.read(path, RunProfiles(tmp_path))


def test_a_folder_or_a_list_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(LIST)
    with pytest.raises(UsageError, match="they have aws, azure"):
        job_logs.read(path, RunProfiles(sia(tmp_path / "profiles"), "a100"))
    table = tmp_path / "profiles" / "toy" / "placements-dgx-ext.csv"
    table.write_text("placement,local_bsz,step_time,sync_time\n48,x,1.0,0\n")
    with pytest.raises(InputError, match=r"placements-dgx-ext.csv:2: local_bsz and step_time"):
        job_logs.read(path, RunProfiles(tmp_path / "profiles"))
    other = tmp_path / "list.csv"
    other.write_text("job_id,submission_time,duration,num_gpu\n1,0,5,1\n")
    with pytest.raises(UsageError, match="no list of Gavel, Sia or Pollux"):
        job_logs.read(other, RunProfiles(tmp_path / "profiles"))


@pytest.mark.shared
def test_published_lists_get_run_times(shared: Path) -> None:
    jobs = shared / "jobs"
    log = job_logs.read(jobs / "gavel/max_min_fairness.trace", RunProfiles(jobs / "gavel"))
    assert (log.table[:, RUN] > 0).all()
    profiles = RunProfiles(jobs / "sia-pollux/profiles", "aws")
    log = job_logs.read(jobs / "sia-pollux/workloads-newtrace/workload-1.csv", profiles)
    assert (log.table[:, RUN] > 0).mean() > 0.7  # the others are of applications without tables
