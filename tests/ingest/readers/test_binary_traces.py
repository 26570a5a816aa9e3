"""Values of TensorBoard's event files and Chakra's traces, computed by hand."""

import struct

import pytest

from ingest.core.errors import InputError
from ingest.pipeline.ingest import ingest
from ingest.readers.training.tensorboard import masked_crc32c
from tests.support.kits_binary import CHAKRA, VERSION, held, logged, node, record

SELECT = "SELECT job, step, time_s, kind, steps FROM step_times ORDER BY step"


def test_checksum_is_the_castagnoli_one_turned_and_shifted() -> None:
    crc = 0xE3069283  # of "123456789": RFC 3720, B.4 and the catalogue of CRC algorithms
    turned = (crc >> 15) | (crc << 17 & 0xFFFFFFFF)
    assert masked_crc32c(b"123456789") == (turned + 0xA282EAD8) % 2**32


def test_step_times_are_wall_times_between_logged_steps(put) -> None:  # type: ignore[no-untyped-def]
    file = VERSION + logged(4, 100.0) + logged(4, 100.1, "lr") + logged(5, 102.5) + logged(15, 122.5)
    sql = put({"run7/events.out.tfevents.1": file})
    assert sql(SELECT) == [("run7", 5, 2.5, "step", 1), ("run7", 15, 2.0, "block", 10)]


def test_logged_times_of_iterations_win_over_wall_times(put) -> None:  # type: ignore[no-untyped-def]
    file = VERSION + logged(1, 5.0) + logged(1, 5.0, "iteration-time", 1.5) + logged(2, 90.0)
    assert put({"run7/events.out.tfevents.1": file})(SELECT) == [("run7", 1, 1.5, "step", 1)]


def test_a_scalar_may_be_a_tensor(put) -> None:  # type: ignore[no-untyped-def]
    tensor = b"\x08\x01" + held(4, struct.pack("<f", 0.5))
    event = b"\x09" + struct.pack("<d", 7.0) + b"\x10\x03"
    event += held(5, held(1, held(1, b"iteration-time") + held(8, tensor)))
    assert put({"r/events.out.tfevents.1": VERSION + record(event)})(SELECT) == [("r", 3, 0.5, "step", 1)]


def test_timed_nodes_of_chakra_count_from_the_first(put) -> None:  # type: ignore[no-untyped-def]
    file = CHAKRA + node(1, b"root", 5, 0) + node(2, b"gemm", 1000, 250) + node(3, b"nccl", 1250, 4000)
    found = put({"gpt.12.et": file})("SELECT op, worker, start_s, time_s FROM op_times ORDER BY start_s")
    assert found == [("gemm", "12", 0.0, 0.00025), ("nccl", "12", 0.00025, 0.004)]


def test_a_trace_without_times_is_refused_with_the_way_out(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "gpt.0.et").write_bytes(CHAKRA + node(1, time_us=0))
    with pytest.raises(InputError, match="chakra_trace_link"):
        ingest([tmp_path / "in"], tmp_path / "store")
