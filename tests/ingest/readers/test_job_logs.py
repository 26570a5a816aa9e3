import gzip
from pathlib import Path

import pytest

from ingest.core.errors import InputError, NotFoundError, UsageError
from ingest.pipeline.ingest import ingest
from ingest.readers import job_logs
from ingest.readers.clusters import swf_log
from ingest.readers.clusters.swf_log import SwfLog
from ingest.readers.job_logs import LakeJobs
from tests.support.kit import lines
from twin.queue.rules import PREDICTSIM
from twin.workload.selection import select

ITP = "job_id,submission_time,duration,num_gpu"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster"
SACCT = "JobID|User|State|Submit|Start|End|AllocTRES|Timelimit"
SWF = b"; MaxProcs: 8\n; UnixStartTime: 0\n1 7 5 60 4 -1 -1 2 90 -1 1 3 -1 -1 2 -1 -1 -1\n"


def read(folder: Path, name: str, content: bytes) -> SwfLog:
    path = folder / name
    path.write_bytes(content)
    return job_logs.read(path)


def columns(log: SwfLog, *names: str) -> list[list[float]]:
    return [log.column(name).tolist() for name in names]


@pytest.mark.parametrize("packed", [False, True])
def test_a_list_of_elasticflow(tmp_path: Path, packed: bool) -> None:
    content = lines(ITP, "aa,5010,1265,1", "bb,5016.5,2066,8")
    name, data = ("itp.csv.gz", gzip.compress(content)) if packed else ("itp.csv", content)
    log = read(tmp_path, name, data)
    assert columns(log, "job", "submit_s", "run_s", "processors") == [[1, 2], [0, 6.5], [1265, 2066], [1, 8]]
    assert log.ids == {1: "aa", 2: "bb"} and log.users == {} and log.processors is None
    assert columns(log, "estimate_s", "wait_s", "user") == [[-1, -1], [-1, -1], [-1, -1]]


def test_users_are_numbered_and_keep_their_names(tmp_path: Path) -> None:
    rows = ("2017-10-09 07:01:55,66.0,2,132.0,zz", "2017-10-09 07:01:50,6,2,12.0,11cb48")
    log = read(tmp_path, "philly.csv", lines(PHILLY, *rows))
    assert columns(log, "submit_s", "run_s", "user") == [[5, 0], [66, 6], [2, 1]]
    assert log.users == {1: "11cb48", 2: "zz"}


def test_a_time_limit_of_slurm_is_the_estimate(tmp_path: Path) -> None:
    times = "2024-03-01T00:00:00|2024-03-01T00:10:00|2024-03-01T00:30:00"
    log = read(tmp_path, "jobs.txt", lines(SACCT, f"17|ann|COMPLETED|{times}|gres/gpu=4|1-02:00:30"))
    assert columns(log, "job", "wait_s", "run_s", "processors") == [[17], [600], [1200], [4]]
    assert columns(log, "estimate_s") == [[26 * 3600 + 30]]


def test_bad_rows_are_rejected_with_their_row(tmp_path: Path) -> None:
    rows = ("a,1,60,1", "b,2,-60,1", "a,3,60,1", "c,,60,1", "d,4,0,1", "e,5,60,9")
    log = read(tmp_path, "itp.csv", lines(ITP, *rows))
    found = select(log, PREDICTSIM, 8)
    assert [(one.row, one.reason) for one in found.rejects] == [
        (2, "negative"),
        (3, "a job of that id came before"),
        (4, "a required value is missing"),
        (5, "run time not positive"),
        (6, "more processors than the machine has"),
    ]
    assert len(found.jobs) == 1


def test_a_description_beside_the_file_counts(tmp_path: Path) -> None:
    toml = 'table = "jobs"\n[columns]\njob_id = "n"\nsubmit_ts = "t"\ngpus = "g"\nduration_s = "d"\n'
    (tmp_path / "dataset.toml").write_text(toml)
    log = read(tmp_path, "mine.csv", lines("n,t,g,d", "x,2024-03-01T00:00:00Z,4,60"))
    assert columns(log, "run_s", "processors") == [[60], [4]]


def test_a_log_in_the_standard_format_keeps_all_fields(tmp_path: Path) -> None:
    for name in ("log.swf", "log.txt"):
        assert columns(read(tmp_path, name, SWF), "processors_requested", "estimate_s") == [[2], [90]]
    assert read(tmp_path, "log.swf", SWF).processors == 8


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"hello\n", "no reader knows this format"),
        ("a.csv", lines("ts,src,dst,bandwidth_bps", "2024-01-01T00:00:00Z,a,b,1e9"), "no job among 1 rows"),
        ("a.json", b'{"v100": {"(\'A3C\', 1)": {"null": 20.0}}}', "holds step_times .gavel., no jobs"),
        ("n.csv", lines("time,active,total", "2017-10-03 00:00:00,312,420"), "no job among 1 rows"),
        ("i.csv", lines(ITP, "a,1,60,x"), "no job among 1 rows .*; row 1: not a whole number"),
    ],
)
def test_a_file_without_jobs_gets_one_message(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, name, content)


def test_jobs_of_the_lake_are_those_of_the_file(tmp_path: Path) -> None:
    folder, store = tmp_path / "kth", tmp_path / "store"
    folder.mkdir()
    (folder / "log.swf").write_bytes(SWF + b"2 9 -1 30 4 -1 -1 -1 -1 -1 1 3 -1 -1 2 -1 -1 -1\n")
    ingest([folder], store)
    log = job_logs.read(LakeJobs(store, "kth"))
    plain = swf_log.read(folder / "log.swf")
    names = ("job", "run_s", "wait_s", "processors", "processors_requested", "estimate_s", "user", "queue")
    assert columns(log, *names) == columns(plain, *names)
    assert columns(log, "submit_s") == [[0, 2]]
    with pytest.raises(NotFoundError, match="no jobs of 'other'"):
        job_logs.read(LakeJobs(store, "other"))


def test_a_set_of_several_queues_asks_for_one(tmp_path: Path) -> None:
    folder, store = tmp_path / "itp", tmp_path / "store"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_bytes(lines(ITP, f"{name},1,60,2"))
    ingest([folder], store)
    with pytest.raises(UsageError, match=r"take itp/FILE, FILE one of a\.csv, b\.csv"):
        job_logs.read(LakeJobs(store, "itp"))
    assert job_logs.read(LakeJobs(store, "itp/b.csv")).ids == {1: "b"}
    with pytest.raises(NotFoundError, match=r"its files with jobs: a\.csv, b\.csv"):
        job_logs.read(LakeJobs(store, "itp/c.csv"))
