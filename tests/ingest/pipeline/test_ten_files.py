"""Ten files as strangers bring them, written from the formats' public definitions.

Six are read as they are. Four are refused in at most 15 lines, and the mapping in the refusal reads them once
what no file says is added: sites, a beginning, a unit.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import InputError
from ingest.lake import duckdb_views
from ingest.pipeline.ingest import ingest
from tests.support.kit import lines

BEGAN = 1_772_323_200
"""2026-03-01T00:00:00Z."""
OWPING = lines(
    "--- owping statistics from [host-a.example.net]:9876 to [host-b.example.net]:9901 ---",
    "SID:\tc0a80101e4f1a2b3c4d5e6f708192a3b",
    "first:\t2026-03-01T00:00:02.112",
    "last:\t2026-03-01T00:00:12.345",
    "100 sent, 1 lost (1.000%), 0 duplicates",
    "one-way delay min/median/max = 9.61/9.7/10.2 ms, (err=0.31 ms)",
    "one-way jitter = 0.1 ms (P95-P50)",
    "hops = 7 (consistently)",
    "no reordering",
)
DMON = lines(
    "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk",
    "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz",
    " 20260301   00:00:00      0    312     55     60     97     40   2619   1755",
    " 20260301   00:00:01      0    313     55     60     98     41   2619   1755",
)
NSYS = lines(
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
    "55.1,1200300400,320,3750938.8,3750000,3700000,3900000,10000.0,ampere_bf16_s16816gemm_bf16_128x256",
)
WANDB = lines(
    *(json.dumps({"_step": n, "_timestamp": BEGAN + 0.5 * n, "_runtime": 0.5 * n}) for n in range(4))
)
SLURM_TIME: dict[str, Any] = {"set": True, "infinite": False}
SQUEUE = json.dumps(
    {
        "jobs": [
            {
                "account": "ml", "accrue_time": SLURM_TIME | {"number": BEGAN}, "job_id": 100,
                "job_state": ["RUNNING"], "user_name": "ada", "submit_time": SLURM_TIME | {"number": BEGAN},
                "start_time": SLURM_TIME | {"number": BEGAN + 60},
                "end_time": SLURM_TIME | {"number": BEGAN + 3660},
                "tres_req_str": "cpu=8,mem=64G,node=1,billing=8,gres/gpu=4",
            }
        ],
        "meta": {"slurm": {"version": {"major": "23"}}},
    }
).encode()  # fmt: skip
ATLAS = json.dumps(
    [
        {
            "dst_addr": "192.0.2.8", "proto": "ICMP", "result": [{"rtt": 41.0}, {"rtt": 39.0}, {"x": "*"}],
            "rcvd": 2, "sent": 3, "min": 39.0, "max": 41.0, "avg": 40.0, "msm_id": 1001, "prb_id": 52918,
            "timestamp": BEGAN, "from": "198.51.100.2", "type": "ping",
        }
    ]
).encode()  # fmt: skip
PSCHEDULER = json.dumps(
    {
        "succeeded": True, "error": None, "schema": 1,
        "intervals": [
            {
                "streams": [{"stream-id": 5, "start": n, "end": n + 1, "rtt": 10120}],
                "summary": {"start": n, "end": n + 1, "throughput-bits": 9.4e9 + n * 1e6, "retransmits": n},
            }
            for n in range(10)
        ],
    }
).encode()  # fmt: skip
SPEEDTEST = lines(
    *(
        json.dumps(
            {
                "type": "result", "timestamp": f"2026-03-01T0{n}:00:00Z",
                "ping": {"jitter": 0.5, "latency": 11.2 + n}, "download": {"bandwidth": 117_000_000 + n},
            }
        )
        for n in range(4)
    )
)  # fmt: skip
WEATHERMAP = lines(
    'timestamp,"rbx-g1 -> gra-g1","gra-g1 -> rbx-g1"',
    *(f"2026-03-01T00:0{n}:00+00:00,{12.5 + n},{9 + n}" for n in range(3)),
)
POWER = json.dumps(
    {
        "model": "Llama-3-70B",
        "readings": [
            {"timestamp": f"2026-03-01T00:00:0{n}.000Z", "gpu_id": n % 2, "power_draw_w": 420.5 + n,
             "utilization": 88 + n, "memory_used_mib": 70_000 + n}
            for n in range(6)
        ],
    }
).encode()  # fmt: skip

READ: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "owping.txt": (
        OWPING, "link_samples",
        {"src": "host-a.example.net", "dst": "host-b.example.net", "one_way_s": 0.0097, "loss": 0.01},
    ),
    "dmon.txt": (DMON, "gpu_samples", {"gpu": "0", "power_w": 312.0, "util": 0.97, "sm_clock_mhz": 1755.0}),
    "cuda_gpu_kern_sum.csv": (NSYS, "op_times", {"op": "ampere_bf16_s16816gemm_bf16_128x256"}),
    "history.ndjson": (WANDB, "step_times", {"time_s": 0.5}),
    "squeue.json": (SQUEUE, "jobs", {"job_id": "100", "gpus": 4, "user": "ada", "status": "RUNNING"}),
    "atlas.json": (ATLAS, "link_samples", {"rtt_s": 0.04, "kind": "ping"}),
}  # fmt: skip
REFUSED: dict[str, tuple[bytes, Callable[[str], str], str, int, dict[str, Any]]] = {
    "pscheduler.json": (
        PSCHEDULER, lambda toml: f"start = 2026-03-01T00:00:00Z\n{toml}", "link_samples", 10,
        {"bandwidth_bps": 9.4e9, "retransmits": 0, "src": "SITE"},
    ),
    "speedtest.ndjson": (
        SPEEDTEST, lambda toml: toml.replace('rtt_s = "ms"', 'rtt_s = "ms", bandwidth_bps = "B/s"'),
        "link_samples", 4, {"bandwidth_bps": 936e6, "rtt_s": 0.0112},
    ),
    "weathermap.csv": (
        WEATHERMAP, lambda toml: f'{toml}\nunits = {{bandwidth_bps = "Gb/s"}}', "link_samples", 6,
        {"src": "rbx-g1", "dst": "gra-g1", "bandwidth_bps": 12.5e9},
    ),
    "power.json": (
        POWER, lambda toml: toml, "gpu_samples", 6,
        {"power_w": 420.5, "util": 0.88, "mem_used_bytes": 70_000 * 2**20, "gpu": "0"},
    ),
}  # fmt: skip


def first(store: Path, table: str) -> dict[str, Any]:
    """The first row of a table of the lake."""
    found = duckdb_views.connect(store).sql(f"SELECT * FROM {table} ORDER BY source_row LIMIT 1")
    return dict(found.to_arrow_table().to_pylist()[0])


@pytest.mark.parametrize("name", READ)
def test_a_known_format_is_read(name: str, tmp_path: Path) -> None:
    content, table, expected = READ[name]
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / name).write_bytes(content)
    report = ingest([folder], tmp_path / "store")
    assert set(report.rows) == {table} and report.rejected == 0
    row = first(tmp_path / "store", table)
    assert {key: row[key] for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", REFUSED)
def test_another_format_is_refused_with_the_mapping_that_reads_it(name: str, tmp_path: Path) -> None:
    content, correct, table, count, expected = REFUSED[name]
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        ingest([folder], tmp_path / "store")
    said = str(caught.value).splitlines()
    assert len(said) <= 15
    draft = "\n".join(line.strip() for line in said[said.index(head_of(name)) + 1 :])
    (folder / "dataset.toml").write_text(correct(draft))
    report = ingest([folder], tmp_path / "store")
    assert report.rows == {table: count} and report.rejected == 0
    row = first(tmp_path / "store", table)
    assert {key: row[key] for key in expected} == pytest.approx(expected)


def head_of(name: str) -> str:
    return f"a dataset.toml to start from, for {name} (its rows: twin ingest --explain FILE):"
