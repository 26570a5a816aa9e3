"""Kits of the readers of GPU telemetry, jobs, availability and faults."""

import json
import pickle
from typing import Any

import numpy as np

from tests.support.kit import Bad, Kit, lines


def dumped(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode()


def mllog(key: str, value: Any = None, time_ms: Any = 1715960308411, rank: str = "", **metadata: Any) -> str:
    event = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f"{rank}:::MLLOG {json.dumps(event | {'metadata': metadata})}"


def training(*events: str) -> bytes:
    """A log of 16 GPUs whose global batch is 4 sequences of 8 tokens."""
    system = {"number_of_nodes": "2", "accelerators_per_node": "8", "accelerator_model_name": "H100"}
    shape = mllog("global_batch_size", 4, rank=" 0: "), mllog("max_sequence_length", 8, rank=" 0: ")
    return lines(f":::SYSJSON {json.dumps(system)}", "loading ...", *shape, *events)


def block(start_ms: Any = 1000, stop_ms: Any = 22000, tokens: int = 64) -> tuple[str, str]:
    return (
        mllog("block_start", None, start_ms, " 0: ", first_epoch_num=64, epoch_count=tokens),
        mllog("block_stop", None, stop_ms, " 0: ", first_epoch_num=64),
    )


def step(time_s: Any = 10.5, tokens: int = 32) -> str:
    return mllog("tracked_stats", {"train_step_timing in s": time_s}, rank=" 0: ", step=tokens)


EXPORTER = "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,value,labels_raw"


def scraped(metric: str, value: str, gpu: str = "0", ts: str = "2025-07-18T20:42:34Z") -> str:
    raw = f'__name__=""{metric}"",gpu=""{gpu}""'
    return f'"{ts}","{metric}","{gpu}","nvidia{gpu}","GPU-{gpu}","NVIDIA H100","n31","","{value}","{raw}"'


def sample(metric: str, value: Any, gpu: str = "0") -> str:
    labels = f'gpu="{gpu}",UUID="GPU-{gpu}",modelName="NVIDIA H100",Hostname="n31"'
    return f"{metric}{{{labels}}} {value}"


def sent(value: Any, device: str = "eth0") -> str:
    return f'node_network_transmit_bytes_total{{device="{device}",instance="n31:9100"}} {value}'


def scrape(power: Any = 397.3, total: Any = 1e9) -> list[str]:
    return [
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).",
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge",
        sample("DCGM_FI_DEV_POWER_USAGE", power),
        sample("DCGM_FI_DEV_FB_USED", 1024),
        sample("DCGM_FI_DEV_POWER_USAGE", 100, "1"),
        sent(total),
        sent(total, "lo"),
        "go_goroutines 7",
    ]


def answer(*series: Any, kind: str = "matrix", **changes: Any) -> bytes:
    return dumped({"status": "success", "data": {"resultType": kind, "result": list(series)}} | changes)


def series(metric: str, *values: Any, gpu: str = "0") -> dict[str, Any]:
    labels = {"__name__": metric, "gpu": gpu, "Hostname": "n31", "modelName": "NVIDIA H100"}
    return {"metric": labels, "values": [list(pair) for pair in values]}


POWER, USED = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
PODS += "scheduled_time"
CURVE = [np.array([55.7, 100.5, 599.7]), np.array([0.0, 50.0, 100.0])]


def pod(created: str = "427061", gpus: str = "1", scheduled: str = "427061") -> str:
    return f"openb-pod-0001,6000,12288,{gpus},460,,LS,Running,{created},12902960,{scheduled}"


def fault(kind: str, days: Any = 3.8955, node: Any = "6f24", desc: str = "GPU DBE") -> dict[str, Any]:
    what = {"Level": "Hardware Failure", "Class": "GPU", "Desc": desc}
    return {"node_id": node, "event_time": days, "event_type": f"fault_{kind}", "fault_type": what}


def rates(**jobs: Any) -> bytes:
    return dumped({"v100": {"('ResNet-18 (batch size 16)', 1)": jobs}})


NCCL = (
    "> /opt/all_reduce_perf -b 8 -e 8G -f 2 -g 1",
    "  Rank  0 Group  0 Pid   6899 on node-a device  0 [0000:04:00] NVIDIA H100 80GB HBM3",
    "#  Rank  1 Group  0 Pid   6733 on node-b device  0 [0000:04:00] NVIDIA H100 80GB HBM3",
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw",
)


def reduced(time_us: str = "135.8", size: str = "1073741824") -> str:
    return f"  {size}   268435456  float  sum  -1  {time_us}  158.86  297.86  0  6737.4  159.37  298.82  0"


def swf(
    number: str = "1", submit: str = "10", wait: str = "5", run: str = "60", processors: str = "8"
) -> str:
    return f"{number} {submit} {wait} {run} {processors} -1 -1 -1 -1 -1 1 3 1 -1 2 -1 -1 -1"


KITS: tuple[Kit, ...] = (
    Kit(
        "mllog",
        "power/node_1.txt",
        training(
            mllog("power_reading", 4316), mllog("power_measurement_start"), *block(), step(), step(10.6, 64)
        ),
        {"host_samples": 1, "step_times": 3},
        (
            Bad("negative", training(mllog("power_reading", -1), step()), 1, 1, "negative"),
            Bad("word", training(mllog("power_reading", "high"), step()), 1, 1, "not a number"),
            Bad("not JSON", training(":::MLLOG {power", step()), 1, 1, "not an MLPerf record"),
            Bad("a block without an end", training(block()[0], step()), 1, 1, "never stops"),
            Bad("a block without a start", training(block()[1], step()), 1, 1, "never starts"),
            Bad("half a step", training(*block(tokens=48), step()), 1, 1, "no whole number of steps"),
            Bad("a block of nothing", training(*block(tokens=0), step()), 1, 1, "without steps"),
            Bad("backwards", training(*block(22000, 1000), step()), 1, 1, "negative"),
            Bad("no batch", lines(step(), mllog("power_reading", 1)), 1, 1, "has not said"),
        ),
        text=False,
    ),
    Kit(
        "dcgm-long",
        "dcgm_metrics.csv",
        lines(
            EXPORTER,
            scraped("DCGM_FI_DEV_GPU_UTIL", "100"),
            scraped("DCGM_FI_DEV_FB_USED", "1024"),
            scraped("DCGM_FI_DEV_FB_FREE", "80000", ts="2025-07-18T20:42:36Z"),
            scraped("DCGM_FI_DEV_ENC_UTIL", "0"),
            scraped("DCGM_FI_DEV_GPU_UTIL", "50", "1"),
        ),
        {"gpu_samples": 2},
        (
            Bad("word", lines(EXPORTER, scraped(POWER, "hot"), scraped(POWER, "1")), 1, 1, "not a number"),
            Bad(
                "negative", lines(EXPORTER, scraped(POWER, "-1"), scraped(POWER, "1", "1")), 1, 1, "negative"
            ),
            Bad("NaN", lines(EXPORTER, scraped(POWER, "NaN"), scraped(POWER, "1")), 1, 1, "not finite"),
            Bad("over 100 %", lines(EXPORTER, scraped("DCGM_FI_DEV_GPU_UTIL", "101")), 0, 1, "above 1"),
            Bad("no zone", lines(EXPORTER, scraped(POWER, "1", ts="2025-07-18 20:42:34")), 0, 1, "zone"),
            Bad("no GPU", lines(EXPORTER, scraped(POWER, "1", "").replace("GPU-", "")), 0, 1, "no label"),
            Bad("twice", lines(EXPORTER, scraped(POWER, "1"), scraped(POWER, "1")), 1, 1, "a second value"),
            Bad("short row", lines(EXPORTER, "a,b", scraped(POWER, "1")), 1, 1, "fields"),
        ),
    ),
    Kit(
        "prometheus-text",
        "metrics.prom",
        lines(*scrape(), *scrape(400.0, 1.15e9)),
        {"gpu_samples": 4, "host_samples": 1},
        (
            Bad("negative", lines(*scrape(-1)), 1, 1, "negative"),
            Bad("NaN", lines(*scrape("NaN")), 2, 1, "not finite"),
            Bad("word", lines(*scrape("high")), 2, 1, "not a number"),
            Bad("no sample", lines(*scrape(), "DCGM_FI_DEV_POWER_USAGE{"), 2, 1, "not a sample"),
            Bad("broken label", lines(*scrape(), POWER + "{gpu=0} 1"), 2, 1, "not a label"),
            Bad("no time", lines(*scrape(), sample(POWER, "1 soon", "2")), 2, 1, "not a number"),
        ),
        text=False,
    ),
    Kit(
        "prometheus-json",
        "query_range.json",
        answer(
            series(POWER, [1700000000, "397.3"], [1700000015.5, "400"]),
            series(USED, [1700000000, "1024"], [1700000015.5, "2048"]),
            series("DCGM_FI_DEV_ENC_UTIL", [1700000000, "1"]),
        ),
        {"gpu_samples": 2},
        (
            Bad("negative", answer(series(POWER, [1, "-1"], [2, "1"])), 1, 1, "negative"),
            Bad("NaN", answer(series(POWER, [1, "NaN"], [2, "1"])), 1, 1, "not finite"),
            Bad(
                "no name", answer({"metric": {}, "values": [[1, "1"]]}, series(POWER, [2, "1"])), 1, 1, "name"
            ),
            Bad("no value", answer(series(POWER, [1], [2, "1"])), 1, 1, "index out of range"),
            Bad("failed", answer(status="error", error="query timed out"), 0, 1, "timed out"),
        ),
        text=False,
    ),
    Kit(
        "pod-series",
        "pod_gpu_duty_cycle_anon.csv",
        lines("value,timestamp_anon,container_ip", "50.0,1662858720.0,23b8", "0.0,1662858777.0,23b8"),
        {"gpu_samples": 2},
        (
            Bad(
                "negative",
                lines("value,timestamp_anon,container_ip", "-1,1662858720.0,23b8"),
                0,
                1,
                "negative",
            ),
            Bad(
                "word",
                lines("value,timestamp_anon,container_ip", "x,1662858720.0,23b8"),
                0,
                1,
                "not a number",
            ),
            Bad("blank", lines("value,timestamp_anon,container_ip", ",1662858720.0,23b8"), 0, 1, "nothing"),
        ),
    ),
    Kit(
        "mini-batch",
        "job_1_norm.csv",
        lines(",worker,gpu,time,batch_time_norm", "0,0,25,1,476", "1,1,25,1,509"),
        {"step_times": 2},
        (
            Bad("negative", lines(",worker,gpu,time,batch_time_norm", "0,0,25,1,-476"), 0, 1, "negative"),
            Bad("word", lines(",worker,gpu,time,batch_time_norm", "0,0,25,x,476"), 0, 1, "whole number"),
            Bad("variation", lines(",0,1,2", "job_00,0.05,,x", "job_01,-1,0.1,"), 2, 2, ""),
        ),
    ),
    Kit(
        "curve-pickle",
        "gpu_power_kalos.pkl",
        pickle.dumps(CURVE, protocol=4),
        {"distributions": 3},
        (
            Bad("share above 1", pickle.dumps([CURVE[0], CURVE[1] * 2], protocol=4), 2, 1, "not a fraction"),
            Bad("NaN", pickle.dumps([CURVE[0] * [1, 1, np.nan], CURVE[1]], protocol=4), 2, 1, "not a finite"),
        ),
        text=False,
    ),
    Kit(
        "openb",
        "openb_pod_list_default.csv",
        lines(PODS, pod(), pod(scheduled="")),
        {"jobs": 2},
        (
            Bad("half a GPU", lines(PODS, pod(gpus="0.5"), pod()), 1, 1, "not a whole number"),
            Bad("no start", lines(PODS, pod(created=""), pod()), 1, 1, "missing"),
            Bad("word", lines(PODS, pod(created="noon"), pod()), 1, 1, "not a time"),
        ),
    ),
    Kit(
        "swf",
        "cluster.swf",
        lines("; Version: 2.2", "; UnixStartTime: 1500000000", swf(), swf("2", wait="-1")),
        {"jobs": 2},
        (
            Bad("short line", lines("; UnixStartTime: 0", swf(), "2 10 5"), 1, 1, "3 fields, not 18"),
            Bad("word", lines("; UnixStartTime: 0", swf(), swf("2", run="long")), 1, 1, "not a number"),
            Bad("no submit time", lines("; UnixStartTime: 0", swf(), swf("2", "-1")), 1, 1, "no submit"),
            Bad("too many", lines("; UnixStartTime: 0", swf(), swf("2", processors="9" * 10)), 1, 1, "large"),
        ),
        text=False,
    ),
    Kit(
        "spot-availability",
        "aws-02-15-2023/us-east-1a_v100_1.json",
        dumped({"metadata": {"gap_seconds": 195}, "data": [1, 0, 1]}),
        {"availability": 3},
        (
            Bad("negative", dumped({"metadata": {"gap_seconds": 195}, "data": [1, -1]}), 1, 1, "negative"),
            Bad("half", dumped({"metadata": {"gap_seconds": 195}, "data": [1, 0.5]}), 1, 1, "whole number"),
            Bad("no data", dumped({"metadata": {"gap_seconds": 195}}), 0, 1, "no 'data'"),
        ),
        text=False,
    ),
    Kit(
        "node-faults",
        "fault_trace.json",
        dumped([fault("start"), fault("start", 4, "2e33"), fault("end", 5.5)]),
        {"faults": 2},
        (
            Bad("an end alone", dumped([fault("start"), fault("end", 4, "2e33")]), 1, 1, "has not started"),
            Bad("negative", dumped([fault("start", -1), fault("start")]), 1, 1, "negative"),
            Bad("other event", dumped([fault("start"), fault("pause")]), 1, 1, "neither"),
            Bad("no node", dumped([fault("start"), fault("start", node="")]), 1, 1, "not a name"),
        ),
        text=False,
    ),
    Kit(
        "gavel",
        "physical_cluster_throughputs.json",
        rates(**{"null": 32.35, "('A3C', 1)": [20.0, 5.0]}),
        {"step_times": 2},
        (
            Bad("did not run", rates(**{"null": 32.35, "('A3C', 1)": [0.0, 0.0]}), 1, 1, "did not run"),
            Bad("negative", rates(**{"null": -32.35, "('A3C', 1)": [1.0, 0.0]}), 1, 1, "negative"),
            Bad("no tuple", rates(null=32.35, A3C=[1.0, 0.0]), 1, 1, "not written as"),
        ),
        text=False,
    ),
    Kit(
        "nccl-tests",
        "nccl.txt",
        lines(*NCCL, "#  (B)  (elements)  (us)  (GB/s)  busbw", reduced(), "# Out of bounds values : 0 OK"),
        {"collective_profiles": 2},
        (
            Bad("no program", lines(*NCCL[1:], "busbw", reduced()), 0, 2, "names no program"),
            Bad("word", lines(*NCCL, "busbw", reduced("x"), reduced()), 3, 1, "not a number"),
            Bad("cut line", lines(*NCCL, "busbw", reduced()[:60]), 1, 1, "is cut"),
        ),
        text=False,
    ),
)
