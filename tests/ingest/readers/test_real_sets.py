"""The six public sets of the first milestone, counted independently with the standard library."""

import csv
import hashlib
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ingest.lake import duckdb_views, lake
from ingest.pipeline.ingest import ingest
from ingest.pipeline.ingest_report import IngestReport

pytestmark = pytest.mark.shared

FOLDERS = (
    "wan/cloudpilot-iperf3",
    "wan/wanify-aws8",
    "wan/skyplane-grids",
    "gpu/telemetry-nanogpt-nvidia-smi",
    "gpu/telemetry-h100-dcgm-10hz",
    "gpu/jobs-philly",
)


@pytest.fixture(scope="module")
def reports(
    shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[IngestReport, IngestReport, Path]:
    store = tmp_path_factory.mktemp("real")
    paths = [shared / "traces" / folder for folder in FOLDERS]
    return ingest(paths, store), ingest(paths, store), store


@pytest.fixture(scope="module")
def sql(reports: tuple[IngestReport, IngestReport, Path]) -> duckdb.DuckDBPyConnection:
    return duckdb_views.connect(reports[2])


def one(sql: duckdb.DuckDBPyConnection, text: str) -> tuple[float, ...]:
    row = sql.execute(text).fetchone()
    assert row is not None
    return row


def runs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path inside its archive and content of every iperf3 file, archives first."""
    for archive in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                held = tar.extractfile(member)
                if held is not None:
                    yield member.name, held.read()
    for path in sorted(folder.rglob("*.res")):
        yield path.relative_to(folder).as_posix(), path.read_bytes()


def expected_runs(folder: Path) -> tuple[Counter[str], int, int]:
    """Rows stored and rejected, files that are copies, files that are empty: by the letter of SOURCES.md."""
    rows: Counter[str] = Counter()
    copies = empty = 0
    seen = set()
    for name, content in runs(folder):
        digest = hashlib.sha256(content).hexdigest()
        if not content:
            empty += 1
        elif digest in seen:
            copies += 1
        elif "host_host" in name or "sum_received" not in (document := json.loads(content))["end"]:
            rows["rejected"] += 1
        else:
            rows["stored"] += 1 + sum(not i["sum"]["omitted"] for i in document["intervals"])
        seen.add(digest)
    return rows, copies, empty


def records(path: Path) -> int:
    with path.open(newline="") as stream:
        return sum(1 for row in csv.reader(stream) if row) - 1


def test_every_file_adds_up_and_a_second_ingest_adds_nothing(
    reports: tuple[IngestReport, IngestReport, Path],
) -> None:
    first, second, store = reports
    for result in (*first.files, *second.files):
        assert result.rows_in == sum(result.stored.values()) + result.rejected
    assert second.rows == {} and second.rejected == 0
    assert all(result.already or result.skipped_reason == "empty file" for result in second.files)
    assert len(second.files) == len(first.files)
    assert lake.verify(store) == []
    assert sum(first.rows.values()) == sum(sum(d.rows.values()) for d in lake.datasets(store).values())


def test_cloudpilot_rows(shared: Path, reports: tuple[IngestReport, IngestReport, Path], sql) -> None:  # type: ignore[no-untyped-def]
    rows, copies, empty = expected_runs(shared / "traces/wan/cloudpilot-iperf3")
    mine = [r for r in reports[0].files if r.dataset == "cloudpilot-iperf3"]
    assert sum(sum(r.stored.values()) for r in mine) == rows["stored"]
    assert sum(r.rejected for r in mine) == rows["rejected"]
    assert sum(r.already for r in mine) == copies
    assert sum(r.skipped_reason == "empty file" for r in mine) == empty == 2
    kept = one(sql, "SELECT count(*) FROM link_samples WHERE dataset = 'cloudpilot-iperf3'")
    assert kept == (rows["stored"],)
    assert one(sql, "SELECT count(*) FROM rejects") == (rows["rejected"],)


def test_cloudpilot_figures(sql) -> None:  # type: ignore[no-untyped-def]
    """Means of the August mesh as SOURCES.md gives them: units, direction and warm-up are right."""
    august = (
        "FROM link_samples WHERE source_row = 0 AND ts < '2021-09-01' AND dataset = 'cloudpilot-iperf3' AND "
    )
    metro = "(src LIKE 'aus%' OR src LIKE 'syd%') = (dst LIKE 'aus%' OR dst LIKE 'syd%')"
    figures = "avg(bandwidth_bps), stddev(bandwidth_bps), min(bandwidth_bps), avg(rtt_s), max(bandwidth_bps)"
    mean, deviation, least, rtt, most = one(sql, f"SELECT {figures} {august} NOT {metro}")
    assert (mean, deviation) == (pytest.approx(74e6, rel=0.01), pytest.approx(20e6, rel=0.02))
    assert (least, most) == (pytest.approx(4.2e6, rel=0.02), pytest.approx(111e6, rel=0.01))
    assert rtt == pytest.approx(0.294, rel=0.01)
    mean, deviation, least, rtt, most = one(sql, f"SELECT {figures} {august} {metro}")
    assert (mean, deviation) == (pytest.approx(3.45e9, rel=0.01), pytest.approx(2.0e9, rel=0.03))
    assert (least, most) == (pytest.approx(1.28e9, rel=0.01), pytest.approx(7.24e9, rel=0.01))
    assert one(sql, f"SELECT count(DISTINCT (src, dst)) {august} true") == (12,)
    assert one(sql, "SELECT min(duration_s) > 9 FROM link_samples WHERE source_row = 0 AND streams = 1") == (
        True,
    )


def test_cloudpilot_links_of_october(sql) -> None:  # type: ignore[no-untyped-def]
    found = dict(
        sql.execute(
            "SELECT src || '>' || dst, count(*) FROM link_samples WHERE ts > '2021-10-01' AND source_row = 0 "
            "AND dataset = 'cloudpilot-iperf3' GROUP BY 1"
        ).fetchall()
    )
    # 177, 130, 120, 117, 101, 50 files, less copies and runs without a result
    for link, files, gone in (
        ("lon04_ibm>us-west-2_aws", 177, 2),
        ("lon04_ibm>ap-northeast-1_aws", 130, 0),
        ("syd04_ibm>eu-west-2_aws", 120, 0),
        ("wdc04_ibm>us-west-2_aws", 101, 0),
        ("eu-west-2_aws>sjc03_ibm", 50, 0),
    ):
        assert files - gone <= found[link] <= files, link


def test_wanify_rows_and_figures(shared: Path, sql) -> None:  # type: ignore[no-untyped-def]
    folder = shared / "traces/wan/wanify-aws8/datasets"
    total, rates = 0, []
    for path in folder.glob("*.json"):
        readings = json.loads(path.read_text())["readings"]
        total += len(readings)
        if path.name.startswith("dynamic"):
            rates += [float(reading["received_mbps"]) for reading in readings]
    here = "FROM link_samples WHERE dataset = 'wanify-aws8'"
    assert one(sql, f"SELECT count(*) {here}") == (total,)
    mean, least, most = one(
        sql, f"SELECT avg(bandwidth_bps), min(bandwidth_bps), max(bandwidth_bps) {here} AND duration_s = 20"
    )
    assert mean == pytest.approx(1e6 * sum(rates) / len(rates)) == pytest.approx(52.7e6, rel=0.01)
    assert (least, most) == (2e6, 236e6)
    # one second snapshots are in kbyte/s in the files, and of the same order in the lake
    (snapshot,) = one(sql, f"SELECT avg(bandwidth_bps) {here} AND duration_s = 1")
    assert 0.5 < snapshot / mean < 2
    assert one(sql, f"SELECT count(DISTINCT (src, dst)) {here}") == (56,)


@pytest.mark.parametrize("file", ["throughput.csv", "whole_throughput_11_28.csv", "latency.csv"])
def test_skyplane_rows(shared: Path, sql, file: str) -> None:  # type: ignore[no-untyped-def]
    with (shared / "traces/wan/skyplane-grids" / file).open(newline="") as stream:
        ends = ("src_region", "src_tier", "dst_region", "dst_tier")
        pairs = [tuple(row[end] for end in ends) for row in csv.DictReader(stream)]
    here = f"FROM link_samples WHERE dataset = 'skyplane-grids' AND source_file = '{file}'"
    assert one(sql, f"SELECT count(*), count(DISTINCT (src, dst)) {here}") == (
        len(pairs),
        len(set(pairs)),  # 80 pairs of January were measured twice
    )
    if file == "latency.csv":
        assert one(sql, f"SELECT bool_and(rtt_s BETWEEN 1e-4 AND 1), bool_and(kind = 'ping') {here}") == (
            True,
            True,
        )
    else:
        assert one(sql, f"SELECT max(bandwidth_bps) < 40e9, min(streams), max(streams) {here}") == (
            True,
            64,
            64,
        )


def test_skyplane_epochs(sql) -> None:  # type: ignore[no-untyped-def]
    """Pairs of both epochs and their ratio, as SOURCES.md gives them for the premium tier."""
    sides = "SELECT src, dst, bandwidth_bps b FROM link_samples WHERE source_file = "
    pairs, ratio = one(
        sql,
        f"SELECT count(*), median(n.b / j.b) FROM ({sides} 'throughput.csv') j JOIN "
        f"({sides} 'whole_throughput_11_28.csv') n USING (src, dst)",
    )
    assert (pairs, ratio) == (pytest.approx(3080, abs=60), pytest.approx(1.0, abs=0.01))


def test_nvidia_smi_rows_and_figures(sql) -> None:  # type: ignore[no-untyped-def]
    for file, rows, mean in (
        ("gpu_metrics_f4f827d_baseline.csv", 6240, 594),
        ("gpu_metrics_b443a1c.csv", 36112, 429),
    ):
        found = one(
            sql,
            "SELECT count(*), avg(power_w), count(DISTINCT gpu) FROM gpu_samples "
            f"WHERE source_file = '{file}'",
        )
        assert found == (rows, pytest.approx(mean, abs=0.6), 8)


def test_dcgm_rows_and_figures(shared: Path, sql) -> None:  # type: ignore[no-untyped-def]
    folder = shared / "traces/gpu/telemetry-h100-dcgm-10hz"
    for table, pattern in (("gpu_samples", "*_telemetry.csv"), ("host_samples", "*_[ib]*[bc].csv")):
        rows = sum(records(path) for path in folder.glob(pattern))
        assert one(sql, f"SELECT count(*) FROM {table} WHERE dataset = 'telemetry-h100-dcgm-10hz'") == (rows,)
    for host, watts in (("t13_node0", 399), ("t13_node1", 458), ("t3", 629), ("b1", 120)):
        assert one(sql, f"SELECT avg(power_w) FROM gpu_samples WHERE host = '{host}'") == (
            pytest.approx(watts, abs=1),
        )
    network = one(sql, "SELECT avg(net_tx_bytes_s) FROM host_samples WHERE host = 't10_node0'")
    assert network[0] == pytest.approx(14.4e9, rel=0.01)
    power = one(sql, "SELECT avg(power_w), max(power_w) FROM host_samples WHERE host = 't13_node0'")
    assert power == (pytest.approx(5164, abs=1), 6675)
    # energy is the integral of power: the counter and the samples agree within a few per cent
    integral, counter = one(
        sql,
        "SELECT avg(power_w) * (epoch_ns(max(ts)) - epoch_ns(min(ts))) / 1e9, max(energy_j) - min(energy_j) "
        "FROM gpu_samples WHERE host = 't3' AND gpu = '0'",
    )
    assert integral == pytest.approx(counter, rel=0.05)


def test_philly_rows_and_figures(shared: Path, sql) -> None:  # type: ignore[no-untyped-def]
    folder = shared / "traces/gpu/jobs-philly"
    assert one(sql, "SELECT count(*) FROM jobs") == (records(folder / "philly.csv"),) == (82247,)
    assert one(sql, "SELECT count(*) FROM jobs WHERE gpus = 1") == (76627,)
    assert one(sql, 'SELECT median(duration_s), max(duration_s), count(DISTINCT "user") FROM jobs') == (
        1144,
        4628226,
        15,
    )
    assert one(sql, "SELECT count(*) FROM availability") == (105644,)


def test_a_folder_of_collections_names_each_set(shared: Path, tmp_path: Path) -> None:
    from ingest.pipeline.discover import data_sets

    names = {item.options.name for item in data_sets([shared / "traces"])}
    folders = {p.name for kind in ("wan", "gpu") for p in (shared / "traces" / kind).iterdir() if p.is_dir()}
    assert names == folders
