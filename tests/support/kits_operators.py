"""Kits of what operators export: schedulers, dmon, scalars, profiler traces, one-way delays."""

import json
from typing import Any

from tests.support.kit import Bad, Kit, lines

T0 = 1_772_323_200


def sacct(**changes: Any) -> dict[str, Any]:
    job = {"association": {"user": "ann"}, "job_id": 7, "user": "ann", "state": {"current": ["COMPLETED"]}}
    job |= {"time": {"submission": T0, "start": T0 + 5, "end": T0 + 65, "elapsed": 60}}
    gpus = {"type": "gres", "name": "gpu", "id": 1001, "count": 8}
    return job | {"tres": {"allocated": [{"type": "cpu", "name": "", "count": 64}, gpus]}} | changes


def squeue(**changes: Any) -> dict[str, Any]:
    job = {"accrue_time": 0, "job_id": 8, "user_name": "bob", "job_state": ["RUNNING"]}
    job |= {
        "submit_time": {"set": True, "infinite": False, "number": T0},
        "start_time": T0 + 9,
        "end_time": 0,
    }
    return job | {"tres_alloc_str": "cpu=4,mem=8G,gres/gpu=2,gres/gpu:h100=2", "priority": 5} | changes


def jobs(*held: Any) -> bytes:
    return json.dumps({"meta": {"plugin": {}}, "jobs": held, "errors": []}).encode()


SACCT = "JobID|User|State|Submit|Start|End|AllocTRES"
DONE = "12|ann|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:05|2026-03-01T01:00:00|cpu=8,gres/gpu=4"
STEP = "12.batch||COMPLETED|2026-03-01T00:00:05|2026-03-01T00:00:05|2026-03-01T01:00:00|cpu=8"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


def helios(gpus: str = "8", start: str = "2020-04-01 00:00:09") -> str:
    return f"5,u1,vcA,{gpus},32,1,COMPLETED,2020-04-01 00:00:00,{start},2020-04-01 01:00:09,3600,9"


DMON = ("#Entity   GPUTL   POWER   FBUSD   TENSO", "ID                W               ")
SCALARS = "Wall time,Step,Value"


def dmon(gpu: str = "GPU 0", power: str = "301.5", tensor: str = "0.31") -> str:
    return f"{gpu}     97      {power}    70000   {tensor}"


def event(name: str = "gemm", cat: str = "kernel", ts: Any = 100.0, dur: Any = 50.0) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur}


def trace(*events: Any) -> bytes:
    begin = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"backend": "nccl", "rank": 3}}
    return json.dumps(begin | {"traceEvents": [{"ph": "M", "name": "process_name"}, *events]}).encode()


NSYS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"


def kernel(mean: str = "1500.5", name: str = "ampere_gemm") -> str:
    return f'40.1,3001000,2000,{mean},1500.0,1400,1800,12.5,"{name}<float, 4>"'


def owping(
    first: str = "2026-03-01T00:00:00.100", sent: str = "100 sent, 1 lost (1.000%)", median: str = "7.1"
) -> bytes:
    return lines(
        "--- owping statistics from [a.example]:8760 to [b.example]:9310 ---",
        "SID: c0a80001d6f3a1b2c3d4e5f6a7b8c9d0",
        f"first: {first}",
        "last: 2026-03-01T00:00:10.000",
        f"{sent}, 0 duplicates",
        f"one-way delay min/median/max = 6.9/{median}/9.2 ms, (err=0.5 ms)",
        "one-way jitter = 0.1 ms (P95-P50)",
    )


KITS = (
    Kit(
        "slurm",
        "jobs.json",
        jobs(sacct(), sacct(job_id=9, time={"submission": T0, "start": 0, "end": 0}), squeue()),
        {"jobs": 3},
        (
            Bad("no state", jobs(sacct(state=None, job_id=None), squeue()), 1, 1, "not a number"),
            Bad("no submission", jobs(sacct(time={}), squeue()), 1, 1, "required"),
            Bad("no time", jobs(squeue(submit_time="soon")), 0, 1, "not a number"),
            Bad("another document", jobs(sacct())[:-30], 0, 1, "not a complete document"),
            Bad("text of sacct", lines(SACCT, DONE, STEP, DONE + "|1"), 1, 1, "expected 7 cells"),
            Bad(
                "no such day",
                lines(SACCT, DONE, DONE.replace("03-01T00:00:00", "02-30T00:00:00")),
                1,
                1,
                "day",
            ),
        ),
        text=False,
    ),
    Kit(
        "job-tables",
        "cluster_log.csv",
        lines(HELIOS, helios(), helios("0")),
        {"jobs": 2},
        (
            Bad("word", lines(HELIOS, helios("all"), helios()), 1, 1, "not a whole number"),
            Bad("no time", lines(HELIOS, helios(start="soon"), helios()), 1, 1, "not a time"),
        ),
    ),
    Kit(
        "dmon",
        "node7.txt",
        lines(*DMON, dmon(), dmon("GPU 1"), *DMON, dmon(), dmon("1", power="N/A")),
        {"gpu_samples": 4},
        (
            Bad("word", lines(*DMON, dmon(power="high"), dmon()), 1, 1, "not a number"),
            Bad("cut", lines(*DMON, dmon(), dmon()[:20]), 1, 1, "expected 5 cells"),
            Bad("above one", lines(*DMON, dmon(tensor="31"), dmon()), 1, 1, "not a fraction"),
        ),
        text=False,
    ),
    Kit(
        "scalars",
        "run-train-tag-loss.csv",
        lines(SCALARS, f"{T0}.5,10,9.1", f"{T0 + 1}.5,11,9.0", f"{T0 + 21}.5,21,8.7"),
        {"step_times": 2},
        (
            Bad(
                "a restart",
                lines(SCALARS, f"{T0},10,9", f"{T0 + 9},3,9", f"{T0 + 10},4,9"),
                1,
                1,
                "a restart",
            ),
            Bad(
                "word", lines(SCALARS, f"{T0},10,9", f"{T0 + 1},x,9", f"{T0 + 2},12,9"), 1, 1, "not a number"
            ),
        ),
    ),
    Kit(
        "kineto",
        "rank3.pt.trace.json",
        trace(
            event("ProfilerStep#4", "user_annotation", 90.0, 900.0), event(), event("Memcpy", "gpu_memcpy")
        ),
        {"step_times": 1, "op_times": 2},
        (
            Bad("negative", trace(event(dur=-1), event()), 1, 1, "negative"),
            Bad("no duration", trace(event(dur=None), event()), 1, 1, "not a number"),
        ),
        text=False,
    ),
    Kit(
        "nsys-stats",
        "report_cuda_gpu_kern_sum.csv",
        lines(NSYS, kernel(), kernel("90", "nccl")),
        {"op_times": 2},
        (
            Bad("negative", lines(NSYS, kernel("-1"), kernel()), 1, 1, "negative"),
            Bad("word", lines(NSYS, kernel("fast"), kernel()), 1, 1, "not a number"),
        ),
    ),
    Kit(
        "owamp",
        "owping.txt",
        owping() + owping("2026-03-01T00:01:00Z"),
        {"link_samples": 2},
        (
            Bad("no packets", owping(sent="0 sent, 0 lost") + owping(), 1, 1, "packets lost"),
            Bad("word", owping(median="fast") + owping(), 1, 1, "not a number"),
            Bad("no day", owping("yesterday") + owping(), 1, 1, "isoformat"),
        ),
        text=False,
    ),
)
