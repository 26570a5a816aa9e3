import csv
import io
import tomllib
from pathlib import Path

import pytest

from ingest.core.errors import InputError
from ingest.lake.schema import TABLES
from twin.calibration.gpu_telemetry import parse_sample
from twin.calibration.layer_profiler import as_csv, profile
from twin.calibration.profiled_layers import profiled_block

SMALL = profiled_block(hidden=64, heads=4, kv_heads=2, ffn=128, seq=16, gated=True)


def test_a_sample_is_converted_to_canonical_units() -> None:
    line = "2026/11/20 05:00:00.000, 0, NVIDIA H200, 50, 1024, 143771, 412.50, 44, 1980"
    sample = parse_sample(line, "h")
    assert (sample.util, sample.mem_used_bytes, sample.power_w) == (0.5, 1024 * 1024**2, 412.5)
    assert (sample.gpu, sample.gpu_model, sample.sm_clock_mhz) == ("0", "NVIDIA H200", 1980.0)


def test_a_value_the_driver_lacks_is_empty_not_zero() -> None:
    sample = parse_sample("t, 0, X, [N/A], 1, 2, [N/A], 44, 1980", "h")
    assert sample.util is None and sample.power_w is None
    row = as_csv([sample]).decode().splitlines()[1].split(",")
    assert row[4] == ""


def test_a_line_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="3 fields of 9"):
        parse_sample("a, b, c", "h")


@pytest.mark.parametrize("gated", [True, False])
def test_profile_writes_what_ingest_reads(tmp_path: Path, gated: bool) -> None:
    shape = profiled_block(64, 4, 2 if gated else 4, 128, 16, gated)
    rows = profile(tmp_path, shapes=[shape], micro_batches=(1, 2), repetitions=2, device="cpu")
    assert [row.micro_batch for row in rows] == [1, 2]
    assert all(row.forward_s > 0 and row.backward_s > 0 and row.update_s > 0 for row in rows)
    described = tomllib.loads((tmp_path / "profile-cpu/dataset.toml").read_text())
    assert described["table"] == "layer_profiles" and described["synthetic"] is False
    table = list(csv.DictReader(io.StringIO((tmp_path / "profile-cpu/layer_profiles.csv").read_text())))
    assert set(table[0]) <= set(TABLES["layer_profiles"].names)
    assert table[0]["activation_bytes"] == ""


def test_parameters_of_a_gated_layer_are_counted() -> None:
    from twin.calibration.profiled_layers import build_layer

    layer = build_layer(SMALL, "cpu")
    head, kv = 64 // 4, 2
    expected = 64 * (64 + 2 * kv * head) + 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert sum(p.numel() for p in layer.parameters()) == expected
