"""Values that the readers of operators' exports make, computed by hand from the samples."""

import json
from datetime import datetime

from tests.support.kit import lines
from tests.support.kits_gpu import mllog, training
from tests.support.kits_operators import (
    DMON,
    DONE,
    NSYS,
    SACCT,
    STEP,
    T0,
    dmon,
    event,
    jobs,
    kernel,
    owping,
    sacct,
    squeue,
    trace,
)

AT = datetime(2026, 3, 1)


def test_slurm_jobs_of_both_commands(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"a.json": jobs(sacct(), squeue())})
    found = sql('SELECT job_id, submit_ts, end_ts, gpus, "user", status, priority FROM jobs ORDER BY 1')
    assert found == [
        ("7", AT, datetime(2026, 3, 1, 0, 1, 5), 8, "ann", "COMPLETED", None),
        ("8", AT, None, 2, "bob", "RUNNING", "5"),
    ]


def test_text_of_sacct_has_jobs_and_no_steps(put) -> None:  # type: ignore[no-untyped-def]
    toml = b'timezone = "Europe/Berlin"\n'
    sql = put({"a.txt": lines(SACCT, DONE, STEP), "dataset.toml": toml})
    assert sql("SELECT job_id, submit_ts, gpus FROM jobs") == [("12", datetime(2026, 2, 28, 23), 4)]


def test_tasks_of_pai_are_laid_at_the_start(put) -> None:  # type: ignore[no-untyped-def]
    toml = b"start = 2026-03-01T00:00:00Z\n"
    row = "j1,worker,3,Terminated,100.0,160.5,600,29.3,50,V100"
    sql = put({"pai_task_table.csv": lines(row), "dataset.toml": toml})
    seconds = "epoch(submit_ts) - 1772323200, epoch(end_ts) - 1772323200"
    assert sql(f"SELECT job_id, {seconds}, gpus FROM jobs") == [("j1/worker", 100, 160.5, 2)]


def test_dmon_counts_the_lines_of_each_gpu(put) -> None:  # type: ignore[no-untyped-def]
    content = lines(*DMON, dmon(), dmon("GPU 1"), dmon())
    sql = put({"n1.txt": content, "dataset.toml": b"start = 2026-03-01T00:00:00Z\ninterval_s = 2\n"})
    columns = "host, gpu, epoch(ts) - 1772323200, util, power_w, mem_used_bytes, tensor_active"
    same = (0.97, 301.5, 70000 * 1024**2, 0.31)
    assert sql(f"SELECT {columns} FROM gpu_samples ORDER BY 2, 3") == [
        ("n1", "0", 0, *same),
        ("n1", "0", 2, *same),
        ("n1", "1", 0, *same),
    ]


def test_dmon_of_nvidia_smi_with_dates(put) -> None:  # type: ignore[no-untyped-def]
    content = lines(
        "#Date       Time        gpu    pwr  gtemp  mtemp     sm",
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %",
        " 20260301   00:00:01      0    310     45      -     88",
    )  # fmt: skip
    sql = put({"smi.txt": content})
    found = sql("SELECT epoch(ts) - 1772323200, gpu, power_w, temp_c, util FROM gpu_samples")
    assert found == [(1, "0", 310, 45, 0.88)]


def test_history_of_wandb(put) -> None:  # type: ignore[no-untyped-def]
    history = [{"_step": 4, "_timestamp": T0, "loss": 3}, {"_step": 5, "_timestamp": T0 + 1.5}]
    history += [{"_step": 9, "_timestamp": T0 + 9.5}]
    sql = put({"run.jsonl": lines(*map(json.dumps, history))})
    found = sql("SELECT job, step, time_s, kind, steps FROM step_times ORDER BY step")
    assert found == [("run", 5, 1.5, "step", 1), ("run", 9, 2.0, "block", 4)]


def test_kernels_and_steps_of_a_trace(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"r.json": trace(event("ProfilerStep#4", "user_annotation", 90.0, 900.0), event())})
    assert sql("SELECT worker, step, time_s FROM step_times") == [("3", 4, 900e-6)]
    assert sql("SELECT op, round(start_s * 1e6, 6), round(time_s * 1e6, 6) FROM op_times") == [
        ("gemm", 10, 50)
    ]


def test_a_kernel_of_nsight_has_its_mean_time(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"k.csv": lines(NSYS, kernel())})
    assert sql("SELECT op, round(time_s * 1e9, 3) FROM op_times") == [("ampere_gemm<float, 4>", 1500.5)]


def test_owping_is_one_way(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"o.txt": owping()})
    found = sql("SELECT src, dst, round(one_way_s, 9), rtt_s, loss FROM link_samples")
    assert found == [("a.example", "b.example", 0.0071, None, 0.01)]


def test_delays_of_esmond_are_one_way(put) -> None:  # type: ignore[no-untyped-def]
    series = [{"ts": T0, "val": {"10.0": 3, "20.0": 1}}]
    sql = put({"a_b_histogram-owdelay_1_2.json": json.dumps(series).encode()})
    assert sql("SELECT src, one_way_s, rtt_s FROM link_samples") == [("a", 0.0125, None)]


def test_blocks_of_mlperf_that_count_samples(put) -> None:  # type: ignore[no-untyped-def]
    events = (
        mllog("block_start", None, 1000, samples_count=8),
        mllog("block_stop", None, 7000, samples_count=20),
        mllog("block_start", None, 8000, samples_count=20),
        mllog("block_stop", None, 9000, samples_count=21),
    )
    sql = put({"log.txt": training(*events)})
    assert sql("SELECT step, time_s, steps FROM step_times") == [(3, 2.0, 3)]
    assert sql("SELECT reason FROM rejects") == [("1 samples are no whole number of steps of 4",)]
