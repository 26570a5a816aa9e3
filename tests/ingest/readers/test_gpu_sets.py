"""Public GPU telemetry, jobs, availability and faults through the readers: units, quirks, counts."""

import csv
import json
import re
import tarfile
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.sets import PROFILE_SETS, Sets, data_lines

pytestmark = pytest.mark.shared
NAMES = (
    "telemetry-mlperf-smc-h100",
    "profiles-mlperf-gpt3-scaling",
    "telemetry-dcgm-exporter-snapshot",
    "telemetry-alibaba-gentd26",
    "telemetry-alibaba-minibatch-time",
    "telemetry-acme-util-cdf",
    "jobs-alibaba-openb-2023",
    "inventory-alibaba",
    "availability-skypilot-spot",
    "faults-infinitehbd",
    "profiles-nccl-tests",
    "profiles-gavel-throughputs",
)


@pytest.fixture(scope="module")
def sets(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(shared / "traces/gpu", tmp_path_factory.mktemp("gpu") / "store", *NAMES)


def test_every_folder_has_a_test_or_one_elsewhere(shared: Path) -> None:
    elsewhere = {"telemetry-h100-dcgm-10hz", "telemetry-nanogpt-nvidia-smi", "jobs-philly"}
    elsewhere |= {"profiles-aiconfigurator"}  # GEMM and NCCL profiles that no reader knows yet
    folders = {path.name for path in (shared / "traces/gpu").iterdir() if path.is_dir()}
    assert folders == {*NAMES, *PROFILE_SETS, *elsewhere}


def test_every_file_is_read_or_left_out_with_its_own_reason(sets: Sets) -> None:
    for name in NAMES:
        for file in sets.files(name):
            assert file.reader or "no reader knows" not in str(file.skipped_reason), file.path


def test_mlperf_energy_of_64_nodes(sets: Sets) -> None:
    files = sets.files("telemetry-mlperf-smc-h100")
    nodes = [file for file in files if "/power/node_" in file.path]
    assert len(nodes) == 64 and not any(file.already for file in nodes)  # 30 pairs have the same content
    for file in nodes:
        readings = Path(file.path).read_text().count('"key": "power_reading"')
        assert file.rows_in == file.stored["host_samples"] == readings
    energy_kwh, hosts, mean_w = sets.one(
        """SELECT sum(energy_ws) / 3.6e6, count(DISTINCT host), avg(power_w) FROM (
        SELECT host, power_w, (power_w + lag(power_w) OVER node) / 2
            * (epoch_ns(ts) - lag(epoch_ns(ts)) OVER node) / 1e9 AS energy_ws
        FROM host_samples WHERE dataset = 'telemetry-mlperf-smc-h100'
        WINDOW node AS (PARTITION BY host ORDER BY ts))"""
    )
    assert hosts == 64
    assert energy_kwh == pytest.approx(415.22, rel=1e-3)  # what total_power.txt states
    assert mean_w == pytest.approx(6848, rel=1e-3)


def test_mlperf_step_times(sets: Sets) -> None:
    steps = """SELECT count(*), median(time_s), quantile_cont(time_s, 0.01), min(step), max(step)
        FROM step_times WHERE dataset = 'telemetry-mlperf-smc-h100' AND kind = 'smoothed'"""
    assert sets.one(steps) == (288, pytest.approx(10.638, abs=1e-3), pytest.approx(10.504, abs=2e-3), 1, 288)
    blocks = """SELECT count(*), median(time_s), any_value(gpus), any_value(gpu_model), min(steps), max(steps)
        FROM step_times WHERE job = '{}' AND kind = 'block'"""
    small, large = (
        sets.one(blocks.format("eos_n64_result_0")),
        sets.one(blocks.format("eos-dfw_n1344_result_0")),
    )
    assert small == (24, pytest.approx(10.903, abs=1e-3), 512, "NVIDIA H100-SXM5-80GB", 11, 11)
    assert large == (22, pytest.approx(0.921, abs=1e-3), 10752, "NVIDIA H100-SXM5-80GB", 10, 10)
    for file in sets.files("profiles-mlperf-gpt3-scaling"):
        assert file.rows_in == Path(file.path).read_text().count('"key": "block_stop"')


def test_exporter_snapshot_has_one_row_for_each_gpu(sets: Sets) -> None:
    (file,) = sets.files("telemetry-dcgm-exporter-snapshot")
    with Path(file.path).open(newline="") as stream:
        cells = list(csv.DictReader(stream))
    power = [float(c["value"]) for c in cells if c["metric_name"] == "DCGM_FI_DEV_POWER_USAGE"]
    memory = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")
    total_mib = sum(float(c["value"]) for c in cells if c["metric_name"] in memory)
    assert file.rows_in == len({c["uuid"] for c in cells}) == 247
    found = sets.one(
        """SELECT count(*), count(DISTINCT host), sum(power_w), avg(util), sum(mem_total_bytes),
        count(temp_c), count(sm_clock_mhz), any_value(gpu_model)
        FROM gpu_samples WHERE dataset = 'telemetry-dcgm-exporter-snapshot'"""
    )
    assert found[:2] == (247, 31) and found[5:] == (247, 247, "NVIDIA H100 80GB HBM3")
    assert found[2] == pytest.approx(sum(power)) and found[2] / 247 == pytest.approx(263, abs=1)
    assert found[3] == pytest.approx(0.44, abs=0.01) and found[4] == total_mib * 2**20


def test_pods_on_an_anonymised_clock(sets: Sets) -> None:
    for file in sets.files("telemetry-alibaba-gentd26"):
        archive, _, member = file.path.rpartition("/")
        with tarfile.open(archive) as tar:
            assert [name for name in tar.getnames() if not name.startswith("._")] == [member]
            stream = tar.extractfile(member)
            assert stream is not None
            assert file.rows_in == sum(1 for line in stream if line.strip()) - 1
    step = """SELECT median(gap) FROM (SELECT (epoch_ns(ts) - lag(epoch_ns(ts)) OVER pod) / 1e9 AS gap
        FROM gpu_samples WHERE dataset = 'telemetry-alibaba-gentd26' AND util IS NOT NULL
        WINDOW pod AS (PARTITION BY host ORDER BY ts))"""
    assert sets.one(step) == 57.0
    pods = "SELECT count(DISTINCT host), count(*) FROM gpu_samples WHERE dataset LIKE '%gentd26' AND "
    assert sets.one(pods + "util IS NOT NULL") == (143, 157_417)
    assert sets.one(pods + "mem_used_bytes IS NOT NULL") == (144, 161_413)
    assert sets.one(pods + "util > 0")[1] < 0.6 * 157_417


def test_mini_batches_without_a_unit(sets: Sets) -> None:
    for file in sets.files("telemetry-alibaba-minibatch-time"):
        path = Path(file.path)
        if path.name == "coefficient_variation.csv":
            with path.open(newline="") as stream:
                filled = sum(cell != "" for record in list(csv.reader(stream))[1:] for cell in record[1:])
            assert file.rows_in == filled
        else:
            assert file.rows_in == data_lines(path)
    where = "FROM step_times WHERE dataset = 'telemetry-alibaba-minibatch-time'"
    assert sets.one(f"SELECT count(time_s), max(time_norm) {where}") == (0, 1000.0)
    assert sets.one(f"SELECT count(DISTINCT job), max(step) {where} AND kind = 'variation'") == (100, 1999)


def test_distributions_from_pickles(sets: Sets) -> None:
    files = {Path(file.path).name: file for file in sets.files("telemetry-acme-util-cdf")}
    assert "pandas.core.series.Series" in str(files["util_gpu_pai.pkl"].skipped_reason)
    assert files["util_gpu_seren.pkl"].rows_in == 5000 and files["gpu_temp_kalos.pkl"].rows_in == 2000
    at = "SELECT value FROM distributions WHERE name = '{}' AND quantity = '{}' AND cumulative >= 0.5 LIMIT 1"
    assert sets.one(at.format("gpu_power_kalos", "gpu_power_w")) == pytest.approx(101, abs=3)
    assert sets.one(at.format("util_gpu_kalos", "gpu_util_percent")) == pytest.approx(97, abs=1)
    ends = "SELECT min(value), max(value) FROM distributions WHERE name = 'gpu_power_kalos'"
    assert sets.one(ends) == pytest.approx((55.7, 599.7), abs=0.1)


def test_openb_pods(sets: Sets) -> None:
    (file,) = [file for file in sets.files("jobs-alibaba-openb-2023") if file.reader]
    with Path(file.path).open(newline="") as stream:
        pods = list(csv.DictReader(stream))
    assert file.rows_in == len(pods) == 8152
    counts = dict(sets.all("SELECT gpus, count(*) FROM jobs GROUP BY gpus"))
    assert counts == {int(gpus): count for gpus, count in Counter(pod["num_gpu"] for pod in pods).items()}
    pending = "SELECT count(*), count(start_ts), count(end_ts) FROM jobs WHERE status = 'Pending'"
    assert sets.one(pending) == (897, 0, 897)
    life = (
        "SELECT median(epoch_ns(end_ts) - epoch_ns(submit_ts)) / 1e9, max(end_ts) - min(submit_ts) FROM jobs"
    )
    median_s, span = sets.one(life)
    assert median_s == pytest.approx(540, rel=0.1) and span.days == 149


def test_spot_availability(sets: Sets) -> None:
    for file in sets.files("availability-skypilot-spot"):
        document = json.loads(Path(file.path).read_text())
        assert file.rows_in == len(document["data"]), file.path
    zone = """SELECT count(*), avg(gpus_available), min(ts), max(ts) FROM availability
        WHERE domain = '{}' AND source_file LIKE '%1-node/%'"""
    count, mean, first, last = sets.one(zone.format("us-east-1a"))
    assert (count, first) == (20_158, datetime(2023, 2, 15)) and mean == pytest.approx(0.17, abs=0.01)
    assert (last - first).total_seconds() == pytest.approx(45.5 * 86400, rel=0.001)
    assert sets.one(zone.format("us-west-2b"))[1] == pytest.approx(0.90, abs=0.01)
    many = "SELECT count(DISTINCT domain), max(gpus_available), min(ts) FROM availability WHERE source_file "
    assert sets.one(many + "LIKE '%16-node%'") == (3, 16, datetime(2023, 8, 27))


def test_node_faults(sets: Sets) -> None:
    (file,) = [file for file in sets.files("faults-infinitehbd") if file.reader]
    events = json.loads(Path(file.path).read_text())
    assert file.rows_in == sum(event["event_type"] == "fault_start" for event in events) == 584
    found = sets.one(
        """SELECT count(DISTINCT host), median(d), avg(d), quantile_cont(d, 0.9), min(ts) FROM (
        SELECT host, ts, (epoch_ns(repaired_ts) - epoch_ns(ts)) / 864e11 AS d FROM faults)"""
    )
    assert found[0] == 231 and found[1:4] == pytest.approx((0.85, 5.5, 13.0), abs=0.1)
    assert found[4] == datetime(2024, 4, 2, 21, 29, 31, 200000)
    assert sets.one("SELECT count(*) FROM faults WHERE kind LIKE '%: GPU: %'") == 158


def test_nccl_tests_in_markdown(sets: Sets) -> None:
    (file,) = sets.files("profiles-nccl-tests")
    numbers = re.findall(r"(?m)^ +\d+ +\d+ +float +sum", Path(file.path).read_text())
    assert file.rows_in == 2 * len(numbers) > 0
    run = "FROM collective_profiles WHERE variant = 'out of place' AND bytes = "
    assert sets.one(f"SELECT op, nodes, ranks, time_s, bandwidth_bps {run} 1 << 30") == (
        "all_reduce", 2, 16, pytest.approx(6759e-6), pytest.approx(297.86 * 8e9)
    )  # fmt: skip
    assert sets.one(f"SELECT time_s, bandwidth_bps, gpu_model {run} 8") == (
        pytest.approx(135.8e-6), None, "NVIDIA H100 80GB HBM3"
    )  # fmt: skip


def test_gavel_rates(sets: Sets) -> None:
    (file,) = sets.files("profiles-gavel-throughputs")
    document = json.loads(Path(file.path).read_text())
    rates = [
        rates if isinstance(rates, float | int) else rates[0]
        for jobs in document.values()
        for neighbours in jobs.values()
        for rates in neighbours.values()
    ]
    assert (file.rows_in, file.rejected) == (len(rates), sum(rate == 0 for rate in rates)) == (10_830, 6_580)
    alone = "SELECT time_s FROM step_times WHERE job = 'ResNet-18 (batch size 16)' AND gpus = 1 "
    assert sets.one(alone + "AND kind = 'alone' AND gpu_model = 'v100'") == pytest.approx(
        1 / document["v100"]["('ResNet-18 (batch size 16)', 1)"]["null"]
    )
