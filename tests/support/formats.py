"""A small file of every format that the readers know, written by hand from the formats' definitions."""

import io
import json
import tarfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import (
    kits_binary,
    kits_energy,
    kits_gpu,
    kits_links,
    kits_operators,
    kits_profiles,
    kits_queues,
)
from tests.support.kit import Bad, Kit, lines


def second(position: int, start: float, omitted: bool, rate: Any = 80e6) -> dict[str, Any]:
    total = {"start": start, "end": start + 1, "seconds": 1.0, "bytes": 10_000_000}
    total |= {"bits_per_second": rate, "retransmits": position, "omitted": omitted, "sender": True}
    return {"streams": [{**total, "rtt": 280_000 + position}], "sum": total}


def iperf(*, warm_up: int = 3, counted: int = 2, **changes: Any) -> dict[str, Any]:
    """An iperf 3.9 document: `warm_up` omitted seconds, then `counted` that count."""
    intervals = [second(n, float(n), True, 1e6) for n in range(warm_up)]
    intervals += [second(warm_up + n, float(n), False) for n in range(counted)]
    test = {"protocol": "TCP", "num_streams": 1, "omit": warm_up, "duration": counted, "reverse": 0}
    start = {
        "connected": [{"socket": 5, "local_host": "10.0.0.1", "remote_host": "10.0.0.2"}],
        "version": "iperf 3.9",
        "timestamp": {"time": "Mon, 02 Aug 2021 14:55:11 UTC", "timesecs": 1627916111},
        "test_start": test,
    }
    end = {
        "streams": [{"sender": {"mean_rtt": 281_000, "min_rtt": 1, "max_rtt": 2}, "receiver": {}}],
        "sum_sent": {"bits_per_second": 90e6, "seconds": 2.0, "retransmits": 7},
        "sum_received": {"bits_per_second": 79e6, "seconds": 2.0},
    }
    return {"start": start, "intervals": intervals, "end": end} | changes


def iperf_bytes(**changes: Any) -> bytes:
    return json.dumps(iperf(**changes), indent="\t").encode()


def reading(rate: Any = "58", **changes: Any) -> dict[str, Any]:
    ends = {"src": "172.31.1.1", "dest": "172.32.1.1", "srcRegion": "us-east-1", "destRegion": "us-west-1"}
    return ends | {"sent_mbps": "59", "received_mbps": rate} | changes


def wanify(*readings: Any) -> bytes:
    document = {"numDCs": "8", "machineType": "t2.medium", "readings": list(readings)}
    return json.dumps(document, indent=4).encode()


def snapshot(rate: str = "6628.77") -> dict[str, Any]:
    ends = {"srcRegion": "us-east-1", "destRegion": "us-west-1", "num_retransmits": "3"}
    return ends | {"sent_Kbytes_per_second": "7708.91", "received_Kbytes_per_second": rate}


RUN = "results/host-lon/target-syd/baseline/time-02-08-2021_17-52/baseline_host_target_direct_9.res"
LOG = "/home/u/logs/throughput_grid/2022.01.29_22.19_odd-name_5s_64c/raw/x.stdout"
GRID = "src_region,src_tier,dst_region,dst_tier,iperf3_connections,iperf3_runtime,stdout_path,"
GRID += "throughput_sent,throughput_received,success"
SMI = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]"
DCGM = "timestamp,phase,gpu,gpu_model,power_w,temp_c,mem_used_mib,mem_total_mib,gpu_util_pct,mem_util_pct,"
DCGM += "sm_active,tensor_active,dram_active,fp16_active,pcie_tx_bytes_s,pcie_rx_bytes_s,nvlink_tx_bytes_s,"
DCGM += "nvlink_rx_bytes_s,throttle_reasons,energy_mj"
LINKS = "ts,src,dst,bandwidth_bps,rtt_s"


def grid(rate: str = "5000000000.5", tier: str = "PREMIUM", success: str = "True") -> str:
    return f"aws:eu-west-3,PREMIUM,gcp:europe-west6-a,{tier},64,5,{LOG},6e9,{rate},{success}"


def tick(gpu: str = "0", power: str = "70.2", util: str = "50", ts: str = "1775333003.425") -> str:
    return f"{ts},init,{gpu},NVIDIA H100,{power},31,3,81559,{util},0,0.4,0.2,0.1,0,10,20,30,40,1,487844063"


def link(rate: str = "1e8", ts: str = "2024-01-01T00:00:00Z", src: str = "a") -> str:
    return f"{ts},{src},b,{rate},0.1"


KITS = (
    Kit(
        "iperf3",
        RUN,
        iperf_bytes(),
        {"link_samples": 3},
        (
            Bad("not JSON", b'{"start": {"version": "iperf 3.9", ', 0, 1, "not JSON"),
            Bad("no result", iperf_bytes(end={}), 0, 1, "sum_received"),
            Bad(
                "a negative second",
                iperf_bytes(intervals=[second(0, 0, False, -1.0), second(1, 1, False)]),
                2,
                1,
                "negative",
            ),
            Bad(
                "a second without numbers",
                iperf_bytes(intervals=[{"sum": {}}, 7, second(2, 2, False)]),
                2,
                2,
                "not an interval",
            ),
            Bad(
                "rate not finite",
                iperf_bytes(intervals=[second(0, 0, False, float("nan"))]),
                1,
                1,
                "not finite",
            ),
        ),
        text=False,
    ),
    Kit(
        "wanify",
        "datasets/dynamic45_20.json",
        wanify(reading("58"), reading("36", destRegion="eu-west-1")),
        {"link_samples": 2},
        (
            Bad("cut", wanify(reading())[:-20], 0, 1, "not a WANify document"),
            Bad("negative", wanify(reading("-1"), reading()), 1, 1, "negative"),
            Bad("word", wanify(reading("fast"), reading()), 1, 1, "not a number"),
            Bad("no region", wanify({"received_mbps": "5"}, reading()), 1, 1, "no 'srcRegion'"),
            Bad("not an object", wanify(3, None, reading()), 1, 2, ""),
        ),
        text=False,
    ),
    Kit(
        "region-pairs",
        "throughput.csv",
        lines(GRID, grid(), grid(tier="STANDARD")),
        {"link_samples": 2},
        (
            Bad("negative", lines(GRID, grid("-1"), grid()), 1, 1, "negative"),
            Bad("word", lines(GRID, grid("n/k"), grid()), 1, 1, "not a number"),
            Bad("failed", lines(GRID, grid(success="False"), grid()), 1, 1, "failed"),
            Bad("short row", lines(GRID, "aws:a,PREMIUM", grid()), 1, 1, "fields"),
        ),
    ),
    Kit(
        "rtt-matrix",
        "latency.csv",
        lines("Source,North,South,East", "North,,3,8.5", "South,4,,", "East,8,16,"),
        {"link_samples": 5},
        (
            Bad("negative", lines("Source,North,South", "North,,-3", "South,4,"), 1, 1, "negative"),
            Bad("word", lines("Source,North,South", "North,,1", "South,x,2"), 2, 1, "not a number"),
        ),
    ),
    Kit(
        "nvidia-smi",
        "gpu.csv",
        lines(
            SMI,
            "2025/09/24 03:17:04.490, 0, NVIDIA H100, 45 %, 1024 MiB, 81559 MiB, 397.30 W",
            "2025/09/24 03:17:04.490, 1, NVIDIA H100, [N/A], 1024 MiB, 81559 MiB, [Not Supported]",
        ),
        {"gpu_samples": 2},
        (
            Bad(
                "negative power",
                lines(SMI, "2025/09/24 03:17:04.490, 0, H100, 45 %, 1 MiB, 2 MiB, -5 W"),
                0,
                1,
                "negative",
            ),
            Bad(
                "other unit",
                lines(SMI, "2025/09/24 03:17:04.490, 0, H100, 45 %, 1 GB, 2 MiB, 5 W"),
                0,
                1,
                "not a whole number",
            ),
            Bad(
                "over 100 %",
                lines(SMI, "2025/09/24 03:17:04.490, 0, H100, 145 %, 1 MiB, 2 MiB, 5 W"),
                0,
                1,
                "above 1",
            ),
            Bad("no time", lines(SMI, "soon, 0, H100, 45 %, 1 MiB, 2 MiB, 5 W"), 0, 1, "not a time"),
        ),
    ),
    Kit(
        "dcgm-wide",
        "t13_node0_telemetry.csv",
        lines(DCGM, tick("0"), tick("1", util="")),
        {"gpu_samples": 2},
        (
            Bad("negative power", lines(DCGM, tick(power="-1"), tick()), 1, 1, "negative"),
            Bad("word", lines(DCGM, tick(power="hot"), tick()), 1, 1, "not a number"),
            Bad("infinite", lines(DCGM, tick(power="inf"), tick()), 1, 1, "not a finite number"),
            Bad("no time", lines(DCGM, tick(ts=""), tick()), 1, 1, "missing"),
        ),
    ),
    Kit(
        "philly",
        "philly.csv",
        lines(
            "timestamp,duration,num_gpus,gpu_time,cluster",
            "2017-10-09 07:01:55,66.0,1,66.0,11cb48",
            "2017-10-03 06:13:03,2951.0,8,23608.0,6214e9",
        )
        + b"\n",
        {"jobs": 2},
        (
            Bad(
                "half a GPU",
                lines("timestamp,duration,num_gpus,gpu_time,cluster", "2017-10-09 07:01:55,1,1.5,1,x"),
                0,
                1,
                "not a whole number",
            ),
            Bad(
                "too many GPUs",
                lines(
                    "timestamp,duration,num_gpus,gpu_time,cluster", "2017-10-09 07:01:55,1,99999999999,1,x"
                ),
                0,
                1,
                "too large",
            ),
            Bad(
                "more in use than there are",
                lines("time,active,total", "2017-10-03 00:00:00,421,420", "2017-10-03 00:01:00,300,420"),
                1,
                1,
                "negative",
            ),
        ),
    ),
    Kit(
        "columns",
        "links.csv",
        lines(LINKS, link(), link(ts="2024-01-01T01:00:00+01:00"), link(ts="2024-01-01 00:00:01")),
        {"link_samples": 3},
        (
            Bad("negative", lines(LINKS, link("-5"), link()), 1, 1, "negative"),
            Bad("word", lines(LINKS, link("abc"), link()), 1, 1, "not a number"),
            Bad("NaN", lines(LINKS, link("NaN"), link()), 1, 1, "not a finite number"),
            Bad("infinite", lines(LINKS, link("-inf"), link("1e400")), 0, 2, "not a finite number"),
            Bad("extra field", lines(LINKS, link() + ",9", link()), 1, 1, "fields"),
            Bad("no source", lines(LINKS, link(src=""), link()), 1, 1, "missing"),
            Bad("blank source", lines(LINKS, link(src="  "), link()), 1, 1, "blank"),
            Bad("stray quote", lines(LINKS, link(src='"a'), link(), link()), 2, 1, "quote"),
            Bad("not text", lines(LINKS, link()) + b"2024-01-01T00:00:00Z,\xff,b,1,1\n", 1, 1, "UTF-8"),
            Bad("year 1", lines(LINKS, link(ts="0001-01-01T00:00:00Z"), link()), 1, 1, "time"),
            Bad("year 2300", lines(LINKS, link(ts="2300-01-01T00:00:00Z"), link()), 1, 1, "time"),
            Bad("year 2250", lines(LINKS, link(ts="2250-01-01T00:00:00Z"), link()), 1, 1, "1970 to 2200"),
            Bad("no such day", lines(LINKS, link(ts="2024-02-30T00:00:00Z"), link()), 1, 1, "time"),
        ),
    ),
    *kits_links.KITS,
    *kits_gpu.KITS,
    *kits_operators.KITS,
    *kits_binary.KITS,
    *kits_profiles.KITS,
    *kits_queues.KITS,
    *kits_energy.KITS,
)


@dataclass
class Folder:
    """A data set on disk that tests fill."""

    path: Path
    files: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, content: bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


def tarred(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return held.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return held.getvalue()
