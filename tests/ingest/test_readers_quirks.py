"""Every quirk that the sources name: units, spellings, blanks, directions, warm-up, times."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats import GRID, LOG, RUN, grid, iperf_bytes, lines, reading, second, snapshot, wanify

from ingest import lake, query
from ingest.errors import InputError
from ingest.ingestion import ingest

Rows = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def put(tmp_path: Path) -> Callable[[dict[str, bytes]], Rows]:
    """Ingest files as data set `set`; gives a function from SQL to rows."""

    def ingested(files: dict[str, bytes]) -> Rows:
        for name, content in files.items():
            path = tmp_path / "set" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        ingest([tmp_path / "set"], tmp_path / "store")
        return lambda sql: query.connect(tmp_path / "store").execute(sql).fetchall()

    return ingested


def assumptions(tmp_path: Path) -> str:
    return " | ".join(lake.datasets(tmp_path / "store")["set"].meta["assumptions"])


def test_iperf3_run_and_second_rows(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({RUN: iperf_bytes()})
    run, first, last = sql(
        "SELECT source_row, ts, src, dst, bandwidth_bps, rtt_s, retransmits, streams, kind, duration_s "
        "FROM link_samples ORDER BY source_row"
    )
    start = datetime.fromtimestamp(1627916111, UTC).replace(tzinfo=None)
    assert run == (0, start, "lon", "syd", 79e6, pytest.approx(0.281), 7, 1, "tcp", 2.0)
    # three seconds of warm-up are left out, and the seconds that count lie after them
    assert (first[0], (first[1] - start).total_seconds(), first[4]) == (4, 3.0, 80e6)
    assert (last[0], (last[1] - start).total_seconds(), last[5]) == (5, 4.0, pytest.approx(0.280004))


@pytest.mark.parametrize(
    ("path", "ends"),
    [
        ("host-lon/target-syd/baseline/time-x/baseline_host_target_direct_0.res", ("lon", "syd")),
        ("host-lon/target-syd/baseline/time-x/baseline_target_host_direct_0.res", ("syd", "lon")),
        ("host-lon/target-syd/proxy-fra/time-x/bw_host_target_direct_3.res", ("lon", "syd")),
        ("host-lon/target-syd/proxy-fra/time-x/bw_proxy_target_direct.res", ("fra", "syd")),
        ("host-lon/target-syd/proxy-fra/time-x/bw_proxy_host_direct.res", ("fra", "lon")),
        (
            "host-us-east4-a_gcp/target-us-west-2_aws/b/bw_host_target_direct.res",
            ("us-east4-a_gcp", "us-west-2_aws"),
        ),
    ],
)
def test_iperf3_direction_stands_in_the_path(put, path: str, ends: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    assert put({path: iperf_bytes()})("SELECT DISTINCT src, dst FROM link_samples") == [ends]


@pytest.mark.parametrize(
    "path",
    [
        "host-lon/target-syd/time-x/baseline_host_host_direct_0.res",  # says who sends, not to whom
        "host-lon/target-syd/time-x/bw_proxy_target_direct.res",  # no proxy in the path
        "lon-to-syd.json",
    ],
)
def test_iperf3_without_a_direction_is_rejected_not_guessed(put, path: str) -> None:  # type: ignore[no-untyped-def]
    sql = put({path: iperf_bytes()})
    assert sql("SELECT count(*) FROM link_samples") == [(0,)]
    assert sql('SELECT "column", raw FROM rejects') == [("path", path)]


def connected(name: str = "10.0.1.7", reverse: int = 0, server: bool = False, **more: Any) -> bytes:
    """A run from 10.0.0.5 to 10.0.1.7, as either of them writes it."""
    near, far = ("10.0.1.7", "10.0.0.5") if server else ("10.0.0.5", "10.0.1.7")
    side = {"accepted_connection": {"host": near}} if server else {"connecting_to": {"host": name}}
    start = {
        "connected": [{"local_host": near, "remote_host": far}],
        "version": "iperf 3.16",
        "timestamp": {"timesecs": 1627916111},
        "test_start": {"protocol": "TCP", "num_streams": 1, "reverse": reverse},
    }
    return iperf_bytes(start=start | side | more)


NAMED = b'[sites]\n"10.0.0.5" = "paris"\n"10.0.1.7" = "oslo"\n'


@pytest.mark.parametrize(
    ("content", "toml", "ends"),
    [
        (connected(), NAMED, ("paris", "oslo")),
        (connected(reverse=1), NAMED, ("oslo", "paris")),
        (connected(server=True), NAMED, ("paris", "oslo")),
        (connected(), b'[values]\nsrc = "lyon"\ndst = "rome"\n', ("lyon", "rome")),
        (connected(), b'[values]\nsrc = "lyon"\n' + NAMED, ("lyon", "oslo")),
        (
            connected("oslo.example"),
            b'[sites]\n"10.0.0.5" = "paris"\n"oslo.example" = "oslo"\n',
            ("paris", "oslo"),
        ),
    ],
)
def test_iperf3_ends_come_from_dataset_toml(put, content: bytes, toml: bytes, ends: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    sql = put({"run.json": content, "dataset.toml": toml})
    assert sql("SELECT DISTINCT src, dst FROM link_samples") == [ends]
    assert sql("SELECT count(*) FROM rejects") == [(0,)]


@pytest.mark.parametrize(
    ("content", "toml", "reason"),
    [
        (connected(), b"", "[sites] of the addresses, of 10.0.0.5 and of 10.0.1.7"),
        (connected(), b'[sites]\n"10.0.0.5" = "paris"\n', "[values] src and dst, or [sites]"),
        (connected("x.example"), b"", "of 10.0.0.5 and of 10.0.1.7 or x.example"),
        (connected(reverse=1), b'[values]\nsrc = "a"\ndst = "b"\n', "reversed (-R)"),
        (connected(connected=[7], test_start=7, connecting_to=None), b"", "[values] src and dst"),
        (b'{"start": {"connected": [], "version": "iperf 3.16"}, "error": "no route"}', b"", "no route"),
    ],
)
def test_iperf3_without_two_ends_says_how_to_give_them(put, content: bytes, toml: bytes, reason: str) -> None:  # type: ignore[no-untyped-def]
    sql = put({"run.json": content, "dataset.toml": toml})
    ((told,),) = sql("SELECT reason FROM rejects")
    assert reason in told and sql("SELECT count(*) FROM link_samples") == [(0,)]


def test_the_near_end_of_fping_is_stated(put) -> None:  # type: ignore[no-untyped-def]
    text = lines("[1700000000.1] oslo : [0], 64 bytes, 11.6 ms (11.6 avg, 0% loss)")
    sql = put({"fping.log": text, "dataset.toml": b'[values]\nsrc = "paris"\n'})
    assert sql("SELECT src, dst FROM link_samples") == [("paris", "oslo")]


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ('[values]\nsrc = "a"\nkind = "tcp"', "iperf3 does not use [values] kind of"),
        ('[units]\nrtt_s = "ms"', "iperf3 does not use [units] of"),
        (
            'reader = "iperf3"\ntable = "link_samples"\n[columns]\nts = "t"',
            "iperf3 does not use table, [columns] of",
        ),
        ('reader = "nccl-tests"\n[sites]\na = "b"', "nccl-tests does not use [sites] of"),
    ],
)
def test_what_a_reader_does_not_use_is_refused_by_name(put, toml: str, named: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        put({RUN: iperf_bytes(), "dataset.toml": toml.encode()})
    assert f"reader {named} dataset.toml" in str(caught.value)


@pytest.mark.parametrize("toml", ['table = "link_samples"\n', ""])
def test_a_table_or_columns_imply_the_reader(put, toml: str) -> None:  # type: ignore[no-untyped-def]
    held = pa.table({"t": ["2024-01-01T00:00:00Z"], "src": ["a"], "dst": ["b"], "bandwidth_bps": [1.0]})
    parquet, csv = (
        io.BytesIO(),
        lines("t,src,dst,bandwidth_bps,kind,loss", "2024-01-01T00:00:01Z,a,b,1,tcp,0"),
    )
    pq.write_table(held, parquet)
    columns = f'{toml}[columns]\nts = "t"\n'.encode()
    files = {"a.csv": csv} | ({"b.parquet": parquet.getvalue()} if toml else {})
    sql = put({**files, "dataset.toml": columns})
    assert sql("SELECT source_file FROM link_samples ORDER BY 1") == [(name,) for name in files]


def test_iperf3_with_two_warm_up_seconds_and_reverse(put) -> None:  # type: ignore[no-untyped-def]
    document = iperf_bytes(
        warm_up=2,
        start={
            "version": "iperf 3.9",
            "timestamp": {"timesecs": 1627916111},
            "test_start": {"protocol": "TCP", "num_streams": 4, "reverse": 1},
        },
    )
    sql = put({RUN: document})
    assert sql("SELECT DISTINCT src, dst, streams FROM link_samples") == [("syd", "lon", 4)]
    assert sql("SELECT epoch_ns(ts) - 1627916111000000000 FROM link_samples ORDER BY ts") == [
        (0,),
        (2_000_000_000,),
        (3_000_000_000,),
    ]


def test_wanify_units_order_and_assumed_times(put, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    sql = put({"dynamic45_20.json": wanify(reading("58")), "snapshot45_1.json": wanify(snapshot())})
    rows = sql(
        "SELECT ts, src, dst, bandwidth_bps, retransmits, streams, duration_s FROM link_samples ORDER BY ts"
    )
    assert [row[0] for row in rows] == [datetime(2000, 1, 1, 0, 15, 45), datetime(2000, 1, 1, 0, 15, 46)]
    assert rows[0][1:] == ("us-east-1", "us-west-1", 6628.77 * 8000, 3, 1, 1.0)  # kbyte/s
    assert rows[1][1:] == ("us-east-1", "us-west-1", 58e6, None, 1, 20.0)  # Mb/s
    assert "21 s x N after 2000-01-01" in assumptions(tmp_path)


def test_wanify_start_and_interval_come_from_dataset_toml(put, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    toml = b"start = 2024-05-01T00:00:00Z\ninterval_s = 60\nstreams = 2\n[sites]\nus-east-1 = 'virginia'\n"
    sql = put({"dynamic2_20.json": wanify(reading()), "dataset.toml": toml})
    rows = sql("SELECT ts, src, dst, streams FROM link_samples")
    assert rows == [(datetime(2024, 5, 1, 0, 2, 1), "virginia", "us-west-1", 2)]
    assert "60 s x N after 2024-05-01" in assumptions(tmp_path)


def test_throughput_grid_in_both_spellings(put, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    later = lines(
        GRID.replace("received", "recieved"), grid("7e9").replace("2022.01.29_22.19", "2022.11.28_22.37")
    )
    sql = put({"january.csv": lines(GRID, grid()), "november.csv": later})
    assert sql(
        "SELECT ts, src, dst, bandwidth_bps, streams, duration_s, kind FROM link_samples ORDER BY ts"
    ) == [
        (datetime(2022, 1, 29, 22, 19), "aws:eu-west-3", "gcp:europe-west6-a", 5000000000.5, 64, 5.0, "tcp"),
        (datetime(2022, 11, 28, 22, 37), "aws:eu-west-3", "gcp:europe-west6-a", 7e9, 64, 5.0, "tcp"),
    ]
    assert "dated by the name of its log folder" in assumptions(tmp_path)


def test_standard_tier_is_another_domain(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"t.csv": lines(GRID, grid(), grid(tier="STANDARD"))})
    assert sql("SELECT dst FROM link_samples ORDER BY dst") == [
        ("gcp:europe-west6-a",),
        ("gcp:europe-west6-a/standard",),
    ]


def test_grid_without_a_date_is_dated_by_assumption(put) -> None:  # type: ignore[no-untyped-def]
    sql = put(
        {
            "t.csv": lines(GRID, grid().replace(LOG, "elsewhere")),
            "rtt.csv": lines("src_region,dst_region,avg_rtt", "aws:a,azure:b,105.976"),
            "dataset.toml": b"start = 2022-04-01T00:00:00Z\n",
        }
    )
    assert sql("SELECT DISTINCT ts FROM link_samples") == [(datetime(2022, 4, 1),)]
    assert sql("SELECT rtt_s, kind, bandwidth_bps FROM link_samples WHERE kind = 'ping'") == [
        (pytest.approx(0.105976), "ping", None)
    ]


def test_matrix_takes_blanks_for_unknown(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"latency.csv": lines("Source,North,South", "North,,3", "South,4,")})
    assert sql("SELECT source_row, src, dst, rtt_s FROM link_samples ORDER BY ALL") == [
        (1, "North", "South", pytest.approx(0.003)),
        (2, "South", "North", pytest.approx(0.004)),
    ]


def test_nvidia_smi_with_units_blanks_and_words(put) -> None:  # type: ignore[no-untyped-def]
    header = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu"
    sql = put(
        {
            "a.csv": lines(header, "2025/09/24 03:17:04.490, 0, NVIDIA H100, 45 %, 1024 MiB, 397.30 W, 48"),
            "b.csv": lines(header, "2025/09/24 03:17:05.490, 1, NVIDIA H100, [N/A], , [Not Supported], 49"),
        }
    )
    columns = "ts, host, gpu, gpu_model, util, mem_used_bytes, power_w, temp_c"
    assert sql(f"SELECT {columns} FROM gpu_samples ORDER BY ts") == [
        (datetime(2025, 9, 24, 3, 17, 4, 490000), "set", "0", "NVIDIA H100", 0.45, 2**30, 397.3, 48.0),
        (datetime(2025, 9, 24, 3, 17, 5, 490000), "set", "1", "NVIDIA H100", None, None, None, 49.0),
    ]


def test_nvidia_smi_in_the_names_of_a_script(put) -> None:  # type: ignore[no-untyped-def]
    header = "timestamp,gpu_index,temperature_C,utilization_gpu_percent,power_W"
    sql = put({"gpu.csv": lines(header, "2025-09-24T03:17:04.490Z,0, 48, 100, 397.30")})
    assert sql("SELECT gpu, temp_c, util, power_w FROM gpu_samples") == [("0", 48.0, 1.0, 397.3)]


def test_nvidia_smi_in_local_time(put) -> None:  # type: ignore[no-untyped-def]
    header = "timestamp,gpu_index,power_W"
    rows = lines(header, "2025-03-30 01:30:00,0,1", "2025-03-30 02:30:00,0,2", "2025-10-26 02:30:00,0,3")
    sql = put({"gpu.csv": rows, "dataset.toml": b"timezone = 'Europe/Berlin'\n"})
    assert sql("SELECT ts, power_w FROM gpu_samples") == [(datetime(2025, 3, 30, 0, 30), 1.0)]
    # one never was, the other was twice
    assert sql("SELECT raw FROM rejects ORDER BY raw") == [("2025-03-30 02:30:00",), ("2025-10-26 02:30:00",)]


def test_dcgm_units_and_side_files(put) -> None:  # type: ignore[no-untyped-def]
    from formats import DCGM, tick

    sql = put(
        {
            "t13_node0_telemetry.csv": lines(DCGM, tick(), tick(gpu="1", power="", util="")),
            "t13_node0_ib.csv": lines(
                "timestamp,phase,ib0_tx_bytes_s,total_tx_bytes_s,total_rx_bytes_s",
                "1775333003.533,warmup,1,17266,5755",
            ),
            "t13_node0_bmc.csv": lines(
                "timestamp,phase,sys_power_w,gpu0_bmc_temp_c", "1775333004.330,init,2250,31"
            ),
        }
    )
    assert sql(
        "SELECT epoch_ns(ts), host, gpu, util, mem_used_bytes, mem_total_bytes, energy_j, pcie_tx_bytes_s, "
        "nvlink_rx_bytes_s FROM gpu_samples WHERE gpu = '0'"
    ) == [(1775333003425000000, "t13_node0", "0", 0.5, 3 * 2**20, 81559 * 2**20, 487844.063, 10.0, 40.0)]
    assert sql("SELECT power_w, util, temp_c FROM gpu_samples WHERE gpu = '1'") == [(None, None, 31.0)]
    assert sql("SELECT host, power_w, net_tx_bytes_s, net_rx_bytes_s FROM host_samples ORDER BY ts") == [
        ("t13_node0", None, 17266.0, 5755.0),
        ("t13_node0", 2250.0, None, None),
    ]


def test_philly_jobs_and_nodes(put, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    sql = put(
        {
            "philly.csv": lines(
                "timestamp,duration,num_gpus,gpu_time,cluster", "2017-10-09 07:01:55,66.0,2,132.0,11cb48"
            ),
            "philly_node_sequence.csv": lines("time,active,total", "2017-10-03 00:00:00,312,420"),
        }
    )
    assert sql('SELECT job_id, submit_ts, start_ts, gpus, duration_s, "user" FROM jobs') == [
        ("philly-1", datetime(2017, 10, 9, 7, 1, 55), None, 2, 66.0, "11cb48")
    ]
    assert sql("SELECT ts, domain, gpus_available FROM availability") == [
        (datetime(2017, 10, 3), "philly", 108)
    ]
    assert "counts nodes" in assumptions(tmp_path)


def test_columns_with_mapping_units_and_epoch(put) -> None:  # type: ignore[no-untyped-def]
    toml = b"""table = "link_samples"
streams = 8
kind = "tcp"
[columns]
ts = "when"
src = "from"
dst = "to"
bandwidth_bps = "mbps"
[units]
ts = "ms"
bandwidth_bps = "Mb/s"
rtt_s = "ms"
[sites]
A = "alpha"
"""
    text = lines("from,to,when,mbps,rtt_s,remark", "A,B,1704067200123,93.5,12,x")
    sql = put({"measured.csv": text, "dataset.toml": b'reader = "columns"\n' + toml})
    columns = "ts, src, dst, bandwidth_bps, rtt_s, streams, kind"
    assert sql(f"SELECT {columns} FROM link_samples") == [
        (datetime(2024, 1, 1, 0, 0, 0, 123000), "alpha", "B", 93.5e6, pytest.approx(0.012), 8, "tcp")
    ]


def test_columns_in_seconds_since_1970_keep_their_digits(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"l.csv": lines("ts,src,dst,rtt_s", "1775333003.425713,a,b,1", "1775333004,a,b,1")})
    assert sql("SELECT epoch_ns(ts) FROM link_samples ORDER BY 1") == [
        (1775333003425713000,),
        (1775333004000000000,),
    ]


def test_columns_keep_nanoseconds_beside_a_bad_neighbour(put) -> None:  # type: ignore[no-untyped-def]
    rows = lines("ts,src,dst,rtt_s", "2024-01-01T00:00:00.123456789Z,a,b,1", "never,a,b,1")
    sql = put({"l.csv": rows})
    assert sql("SELECT epoch_ns(ts) % 1000000000 FROM link_samples") == [(123456789,)]
    assert sql('SELECT source_row, "column", raw FROM rejects') == [(2, "ts", "never")]


def test_parquet_means_the_same_as_csv(put) -> None:  # type: ignore[no-untyped-def]

    held = io.BytesIO()
    moment = pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table(
            {
                "ts": moment,
                "src": ["a"] * 3,
                "dst": ["b"] * 3,
                "bandwidth_bps": [1e8, -1.0, None],
                "rtt_s": [0.1] * 3,
            }
        ),
        held,
    )
    toml = b'reader = "columns"\ntable = "link_samples"\n'
    sql = put({"l.parquet": held.getvalue(), "dataset.toml": toml})
    assert sql("SELECT ts, bandwidth_bps FROM link_samples ORDER BY source_row") == [
        (datetime(2024, 1, 1), 1e8),
        (datetime(2024, 1, 1), None),
    ]
    assert sql("SELECT source_row, raw, reason FROM rejects") == [(2, "-1", "negative")]


def test_a_reject_quotes_the_cell_as_it_stands(put) -> None:  # type: ignore[no-untyped-def]
    toml = b'reader = "columns"\ntable = "link_samples"\n[units]\nbandwidth_bps = "Gb/s"\n'
    rows = lines("ts,src,dst,bandwidth_bps", "2024-01-01T00:00:00Z,a,b,-2.50", "2024-01-01T00:00:00Z,a,b,1")
    sql = put({"l.csv": rows, "dataset.toml": toml})
    assert sql('SELECT source_file, source_row, "column", raw, reason FROM rejects') == [
        ("l.csv", 1, "bandwidth_bps", "-2.50", "negative")
    ]


def test_seconds_of_an_iperf3_run_that_never_warmed_up(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({RUN: iperf_bytes(intervals=[second(0, 0.0, True)])})
    assert sql("SELECT count(*) FROM link_samples") == [(1,)]  # the run itself


def test_columns_with_other_delimiters_and_values_for_all_rows(put) -> None:  # type: ignore[no-untyped-def]
    toml = b"""reader = "columns"
table = "link_samples"
delimiter = ";"
[columns]
ts = "when"
rtt_s = "ping"
[units]
rtt_s = "ms"
[values]
src = "paris"
dst = "oslo"
loss = 0
streams = 4
"""
    sql = put(
        {
            "l.csv": lines(
                "when;ping;note", '2024-01-01T00:00:00Z;12,5;"a;b"', "2024-01-01T00:00:01Z;12.5;x"
            ),
            "dataset.toml": toml,
        }
    )
    assert sql("SELECT src, dst, rtt_s, loss, streams FROM link_samples") == [
        ("paris", "oslo", pytest.approx(0.0125), 0.0, 4)
    ]
    assert sql("SELECT source_row, raw FROM rejects") == [(1, "12,5")]


@pytest.mark.parametrize("stated", ['delimiter = "ab"', "[values]\nnobody = 1", '[values]\nrtt_s = "fast"'])
def test_columns_refuses_values_that_do_not_fit(put, stated: str) -> None:  # type: ignore[no-untyped-def]
    from ingest.errors import UsageError

    toml = f'reader = "columns"\ntable = "link_samples"\n{stated}\n'.encode()
    with pytest.raises(UsageError, match=r"delimiter|nobody|rtt_s"):
        put({"l.csv": lines("ts,src,dst,bandwidth_bps", "2024-01-01T00:00:00Z,a,b,1"), "dataset.toml": toml})


def test_a_kind_that_no_link_sample_has_is_rejected_and_the_nearest_named(put) -> None:  # type: ignore[no-untyped-def]
    kinds = ["tcp", "available", "udp", "load", "capacity", "ping", "", "avaliable", "laod", "TCP", "x"]
    rows = [f"2024-01-01T00:00:{n:02}Z,a,b,1,{kind}" for n, kind in enumerate(kinds)]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps,kind", *rows)})
    assert sql("SELECT count(*) FROM link_samples") == [(7,)]
    assert sql("SELECT raw, reason FROM rejects WHERE \"column\" = 'kind' ORDER BY source_row") == [
        ("avaliable", "unknown; did you mean 'available'?"),
        ("laod", "unknown; did you mean 'load'?"),
        ("TCP", "unknown; did you mean 'tcp'?"),
        ("x", "unknown; known: available, capacity, load, ping, tcp, udp"),
    ]


def test_many_unknown_kinds_get_one_reason(put) -> None:  # type: ignore[no-untyped-def]
    rows = [f"2024-01-01T00:00:00Z,a,b,1,tcp{n}" for n in range(40)]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps,kind", *rows)})
    assert sql("SELECT reason, count(*) FROM rejects GROUP BY 1") == [
        ("unknown; known: available, capacity, load, ping, tcp, udp", 40)
    ]


def test_faults_have_kinds_of_their_own(put) -> None:  # type: ignore[no-untyped-def]
    sql = put(
        {
            "f.csv": lines("ts,host,kind", "2024-01-01T00:00:00Z,a,NVLink"),
            "dataset.toml": b'table = "faults"\nreader = "columns"\n',
        }
    )
    assert sql("SELECT kind FROM faults") == [("NVLink",)]


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        ("1772323200000", 'as milliseconds it would be: say [units] ts = "ms" in dataset.toml'),
        ("1772323200000000", 'as microseconds it would be: say [units] ts = "us" in dataset.toml'),
        ("1772323200000000000", 'as nanoseconds it would be: say [units] ts = "ns" in dataset.toml'),
        ("17723232000000000000000", "not a time (counted from 1970)"),
    ],
)
def test_the_unit_of_a_time_is_suggested(put, stamp: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps", f"{stamp},a,b,1")})
    ((told,),) = sql("SELECT reason FROM rejects")
    assert told.startswith("not a time (counted from 1970)") and told.endswith(reason)


def test_the_unit_of_a_time_is_suggested_behind_a_time_in_words(put) -> None:  # type: ignore[no-untyped-def]
    rows = ["2024-01-01T00:00:00Z,a,b,1", "1772323200000,a,b,1", "then,a,b,1"]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps", *rows)})
    assert [told for (told,) in sql("SELECT reason FROM rejects ORDER BY source_row")] == [
        'not a time (ISO 8601); as milliseconds it would be: say [units] ts = "ms" in dataset.toml',
        "not a time (ISO 8601)",
    ]


@pytest.mark.parametrize(
    ("cell", "unit"),
    [("800 Mb/s", "Mb/s"), ("8e2Gb/s", "Gb/s"), ("800 Mbps", "Mb/s"), ("800 MB/s", "MB/s"), ("fast", None)],
)
def test_a_unit_in_a_cell_belongs_into_dataset_toml(put, cell: str, unit: str | None) -> None:  # type: ignore[no-untyped-def]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps", f"2024-01-01T00:00:00Z,a,b,{cell}")})
    hint = f'; leave only the number in the cell and say [units] bandwidth_bps = "{unit}" in dataset.toml'
    assert sql("SELECT raw, reason FROM rejects") == [(cell, "not a number" + (hint if unit else ""))]
