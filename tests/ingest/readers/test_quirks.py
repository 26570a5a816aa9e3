"""Every quirk that the sources name: units, spellings, blanks, directions, times."""

from datetime import datetime
from pathlib import Path

import pytest

from ingest.lake import lake
from tests.support.formats import GRID, LOG, grid, lines, reading, snapshot, wanify


def assumptions(tmp_path: Path) -> str:
    return " | ".join(lake.datasets(tmp_path / "store")["set"].meta["assumptions"])


def test_the_near_end_of_fping_is_stated(put) -> None:  # type: ignore[no-untyped-def]
    text = lines("[1700000000.1] oslo : [0], 64 bytes, 11.6 ms (11.6 avg, 0% loss)")
    sql = put({"fping.log": text, "dataset.toml": b'[values]\nsrc = "paris"\n'})
    assert sql("SELECT src, dst FROM link_samples") == [("paris", "oslo")]


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
    from tests.support.formats import DCGM, tick

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
