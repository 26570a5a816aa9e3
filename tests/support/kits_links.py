"""Kits of the readers of links: RTT series, tables and slices, traffic matrices, and what users record."""

import json
from typing import Any

from tests.support.kit import Bad, Kit, lines

DOIT = "timestamp,run_id,from_cloud,from_region,to_cloud,to_region,bitrate_Bps,avgrtt,gcp_vm,aws_vm"


def run(moved: str = "125000000.0", ts: str = "2022-02-14T08:59:09Z", rtt: str = "191.605") -> str:
    return f"{ts},emosav,GCP,southamerica-east1,AWS,eu-west-2,{moved},{rtt},e2-small,"


WEEK = (
    "## 9 Apr 2023",
    "{: #network-latency-2023-04-09}",
    "",
    "### Inter-region latency",
    "| Average latency (ms) | Dallas | Sao Paulo |",
    "| --- | :---: | :---: |",
    "| **Dallas** |   | 142 |",
    "| **Sao Paulo** |  141 |  |",
    '{: caption="Table 1. 11 Mar 2023\u20139 Apr 2023" caption-side="bottom"}',
)


def week(old: str = "", new: str = "") -> bytes:
    return lines(*WEEK).decode().replace(old, new).encode()


def tabs(*rows: str) -> bytes:
    return lines(*(row.replace(" ", "\t") for row in rows))


def graph(*links: Any, directed: bool = True) -> bytes:
    document = {"directed": directed, "nodes": [{"id": 0}, {"id": 1}], "links": list(links)}
    return json.dumps(document).encode()


def edge(capacity: Any = 1e10, source: Any = 0, target: Any = 1) -> dict[str, Any]:
    return {"capacity": capacity, "source": source, "target": target}


PING = "PING example.net (192.0.2.7) from 198.51.100.1 eth0: 56(84) bytes of data."
PONG = "[1700000000.123456] 64 bytes from 192.0.2.7: icmp_seq=1 ttl=56 time=11.6 ms"
SILENT = "[1700000002.000000] no answer yet for icmp_seq=2"


def atlas(**changes: Any) -> dict[str, Any]:
    result = {"type": "ping", "prb_id": 7, "msm_id": 1010, "timestamp": 1479600000, "dst_name": "k.example"}
    return result | {"sent": 3, "rcvd": 3, "avg": 23.5, "min": 23.0, "max": 24.0} | changes


def at(ts: Any = 1700000000, val: Any = 9.4e9) -> dict[str, Any]:
    return {"ts": ts, "val": val}


def rate(bits: float = 9.4e9) -> dict[str, Any]:
    whole = {"start": 0.0, "end": 30.0, "throughput-bits": bits, "retransmits": 7}
    return {"schema": 1, "intervals": [], "diags": "", "summary": {"streams": [], "summary": whole}}


ROUND_TRIPS = {"sent": 4, "loss": 0.25, "mean": "PT0.031500S", "roundtrips": [{"seq": 1, "rtt": "PT0.0315S"}]}
DELAYS = {
    "packets-sent": 4, "packets-lost": 1, "packets-received": 3,
    "histogram-latency": {"12.50": 2, "14.00": 1},
}  # fmt: skip
HOPS = {"paths": [[{"ip": "192.0.2.1", "rtt": "PT0.001S"}, {"ip": "192.0.2.7", "rtt": "PT1M0.5S"}]] * 2}


def scheduled(kind: str = "throughput", result: Any = None, **spec: Any) -> dict[str, Any]:
    """A run as pScheduler's archivers get it."""
    named = {"schema": 1, "source": "a.example", "dest": "b.example"} | spec
    return {
        "id": "7f1e", "schedule": {"start": "2026-03-01T00:00:00Z", "duration": "PT40S"},
        "test": {"type": kind, "spec": named}, "tool": {"name": "iperf3", "version": "1"},
        "participants": ["a.example", "b.example"],
        "result": {"succeeded": True} | (rate() if result is None else result),
    }  # fmt: skip


def listed(*entries: Any) -> bytes:
    return json.dumps(entries).encode()


FAILED = {"succeeded": False, "error": "no route"}
RUNS = {"throughput": None, "rtt": ROUND_TRIPS, "latency": DELAYS, "trace": HOPS}


def after(run: dict[str, Any]) -> bytes:
    """A good run and another."""
    return listed(scheduled(), run)


KITS = (
    Kit(
        "intercloud",
        "results.csv",
        lines(DOIT, run(), run(ts="2022-02-14T08:59:10.123456Z")),
        {"link_samples": 2},
        (
            Bad("negative", lines(DOIT, run("-1"), run()), 1, 1, "negative"),
            Bad("word", lines(DOIT, run("fast"), run()), 1, 1, "not a number"),
            Bad("no time", lines(DOIT, run(ts="yesterday"), run()), 1, 1, "not a time"),
            Bad("short row", lines(DOIT, "2022-02-14T08:59:09Z,x", run()), 1, 1, "fields"),
            Bad(
                "not on Earth",
                lines("cloud,region,latitude,longitude", "AWS,a,-33.9,18.4", "AWS,b,91,0", "AWS,c,0,-181"),
                1,
                2,
                "beyond",
            ),
        ),
        text=False,
    ),
    Kit(
        "labelled-rtt",
        "11119.csv",
        lines("epoch;rtt;cp", "14/10/2016 21:17;178.924995;0", "2016-11-19 23:57:45;150.1;1"),
        {"link_samples": 2},
        (
            Bad(
                "failed",
                lines("epoch;rtt;cp", "14/10/2016 21:17;-3;0", "14/10/2016 21:21;-4;0"),
                0,
                2,
                "failure",
            ),
            Bad(
                "month 21",
                lines("epoch;rtt;cp", "10/21/2016 21:17;1;0", "14/10/2016 21:17;1;0"),
                1,
                1,
                "time",
            ),
            Bad(
                "commas",
                lines("epoch;rtt;cp", "14/10/2016 21:17,1,0", "14/10/2016 21:17;1;0"),
                1,
                1,
                "fields",
            ),
            Bad("word", lines("epoch;rtt;cp", "14/10/2016 21:17;slow;0"), 0, 1, "not a number"),
        ),
    ),
    Kit(
        "latency-tables",
        "network-latency.md",
        week(),
        {"link_samples": 2},
        (
            Bad("word", week("142", "n/a"), 1, 1, "not a number"),
            Bad("negative", week("142", "-142"), 1, 1, "negative"),
            Bad("no such day", week() + week("9 Apr", "31 Apr"), 2, 1, "not a date"),
            Bad("more cells than regions", week("142 |", "142 | 7 |"), 1, 1, "destinations"),
        ),
        text=False,
    ),
    Kit(
        "latency-slices",
        "Seattle/SeattleData_3",
        tabs("0 0.17 0.32", "0.15 0 0.5", "0.3 0.4 0"),
        {"link_samples": 6},
        (
            Bad(
                "zero off the diagonal",
                tabs("0 0 0.32", "0.15 0 0.5", "0.3 0.4 0"),
                5,
                1,
                "missing, or below",
            ),
            Bad("diagonal", tabs("0.02 0.1 0.32", "0.15 0 0.5", "0.3 0.4 0"), 6, 1, "from a node to itself"),
            Bad("word", tabs("0 0.1 0.32", "0.15 0 soon", "0.3 0.4 0"), 5, 1, "not a number"),
            Bad("negative", tabs("0 0.1 0.32", "0.15 0 -1", "0.3 0.4 0"), 5, 1, "negative"),
            Bad("NaN", tabs("0 0.1 0.32", "0.15 0 nan", "0.3 0.4 0"), 5, 1, "not a finite number"),
            Bad("not square", tabs("0 0.1 0.32", "0.15 0 0.5"), 0, 1, "no square matrix"),
        ),
    ),
    Kit(
        "traffic-matrices",
        "7.hist",
        lines("0.0 36932697.0 5 0.0", "0 0.0 7.5e6 0"),
        {"link_samples": 4},
        (
            Bad("negative", lines("0 -1 5 0", "0 1 2 0"), 3, 1, "negative"),
            Bad("short line", lines("0 1 5 0", "0 1 2"), 2, 1, "no square matrix"),
            Bad("another size", lines("0 1 5 0", "0 1 2 3 0 5 6 7 0"), 2, 1, "matrix of 3 nodes"),
            Bad("word", lines("0 1 5 0", "0 x 2 0"), 2, 1, "could not convert"),
            Bad("to itself", lines("9 1 5 0"), 2, 1, "from a node to itself"),
        ),
    ),
    Kit(
        "topology",
        "GEANT.json",
        graph(edge(), edge(155e6, 1, 0)),
        {"link_samples": 2},
        (
            Bad("cut", graph(edge())[:-9], 0, 1, "not a complete document"),
            Bad("negative", graph(edge(-1), edge()), 1, 1, "negative"),
            Bad("no target", graph({"capacity": 1, "source": 0}, edge()), 1, 1, "no 'target'"),
            Bad("no node", graph(edge(source=None), edge()), 1, 1, "not a name"),
        ),
        text=False,
    ),
    Kit(
        "ping",
        "ping.txt",
        lines(
            PING, PONG, SILENT, "", "--- example.net ping statistics ---", "2 packets transmitted, 1 received"
        ),
        {"link_samples": 2},
        (
            Bad(
                "no time",
                lines(PING, PONG.replace("time=11.6 ms", "")),
                0,
                1,
                "without sequence number or time",
            ),
            Bad("word", lines(PING, PONG.replace("11.6", "fast"), PONG), 1, 1, "not a number"),
            Bad(
                "far future", lines(PING, PONG.replace("1700", "17000000000000"), PONG), 1, 1, "out of range"
            ),
        ),
        text=False,
    ),
    Kit(
        "fping",
        "fping.log",
        lines(
            "[1700000000.5] a.example : [0], 64 bytes, 11.6 ms (11.6 avg, 0% loss)", "b.example : 1.5 - 2.5"
        ),
        {"link_samples": 4},
        (
            Bad(
                "other text",
                lines("a : [0], 64 bytes, 1 ms (1 avg, 0% loss)", "ICMP Host Unreachable"),
                1,
                1,
                "forms of fping",
            ),
            Bad(
                "word", lines("a : 1.5", "a : [0], 64 bytes, fast ms (1 avg, 0% loss)"), 1, 1, "not a number"
            ),
            Bad(
                "more back than sent", lines("a : 1.5", "a : xmt/rcv/%loss = 1/2/0%"), 1, 1, "2 answers to 1"
            ),
        ),
        text=False,
    ),
    Kit(
        "ripe-atlas",
        "RIPE-Atlas-measurement-1010.json",
        listed(atlas(), atlas(rcvd=0, avg=-1)),
        {"link_samples": 2},
        (
            Bad("cut", listed(atlas())[:-5], 0, 1, "not a complete document"),
            Bad("a traceroute", listed(atlas(), atlas(type="traceroute")), 1, 1, "not a ping"),
            Bad("no probe", listed(atlas(), atlas(prb_id=None)), 1, 1, "not a number"),
            Bad("no target", listed(atlas(), atlas(dst_name=None)), 1, 1, "not a name"),
            Bad("negative", listed(atlas(), atlas(avg=-1)), 1, 1, "negative"),
        ),
        text=False,
    ),
    Kit(
        "pscheduler",
        "runs.json",
        listed(*(scheduled(kind, result) for kind, result in RUNS.items())),
        {"link_samples": 5},
        (
            Bad("cut", listed(scheduled())[:-5], 0, 1, "not a complete document"),
            Bad(
                "failed", after(scheduled(result={"succeeded": False, "error": "no route"})), 1, 1, "no route"
            ),
            Bad("another test", after(scheduled("dns", {})), 1, 1, "a test of type 'dns'"),
            Bad("udp", after(scheduled(udp=True)), 1, 1, "UDP"),
            Bad("negative", after(scheduled(result=rate(-1))), 1, 1, "negative"),
            Bad("no start", after(scheduled() | {"schedule": {}}), 1, 1, "no 'start'"),
            Bad("no ends", after(scheduled(dest=None)), 1, 1, "not a name"),
            Bad(
                "no duration", after(scheduled("rtt", ROUND_TRIPS | {"mean": "3 ms"})), 1, 1, "not a duration"
            ),
            Bad("silent hop", after(scheduled("trace", {"paths": [[{}]]})), 1, 1, "did not answer"),
            Bad("lost", after(scheduled("latency", DELAYS | {"packets-lost": 5})), 1, 1, "packets lost"),
        ),
        text=False,
    ),
    Kit(
        "esmond",
        "a.example_b.example_throughput_2024-01-01_2024-01-02.json",
        listed(at(), at("2024-01-01T00:00:00")),
        {"link_samples": 2},
        (
            Bad("cut", listed(at())[:-5], 0, 1, "not a complete document"),
            Bad("negative", listed(at(), at(val=-1)), 1, 1, "negative"),
            Bad("no value", listed(at(), {"ts": 1}), 1, 1, "no 'val'"),
            Bad("no time", listed(at(), at(ts="soon")), 1, 1, "isoformat"),
        ),
        text=False,
    ),
)
