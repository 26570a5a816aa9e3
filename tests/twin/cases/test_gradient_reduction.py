"""What gradient reduction adds to an iteration, with and without the distributed optimiser."""

import pytest

from twin.cases import table_reader
from twin.cases.answer import explain
from twin.cases.resolve import resolve
from twin.pipeline.pipeline import Pipeline

SHAPE = {
    "gpu_model": "A100-80", "layers": "8", "hidden": "4096", "seq": "2048", "tp": "1", "dp": "16",
    "dtype": "bf16", "global_batch": "64",
}  # fmt: skip


def timing(**more: str) -> Pipeline:
    return explain(resolve(table_reader.parse({**SHAPE, **more}))).timing


def test_the_distributed_optimiser_hides_what_fits_beside_the_backward() -> None:
    plain, sharded = timing(zero="0"), timing(zero="1")
    assert sharded.tail[0, 0] < plain.tail[0, 0] / 2
    slow = timing(zero="1", inter_node_bps="1e9")  # far more than one backward: nearly all of it remains
    slow_plain = timing(zero="0", inter_node_bps="1e9")
    hidden = (slow_plain.tail - slow.tail)[0, 0] / 1e9
    beside = (slow.tb + slow.tf)[0, 0] / 1e9
    reduced_s = slow_plain.tail[0, 0] / 1e9
    assert slow.tail[0, 0] / 1e9 > reduced_s / 2
    assert hidden > beside  # both collectives hide, and gathered weights are half as large as gradients


def test_one_bucket_always_remains() -> None:
    quick = timing(zero="1", inter_node_bps="1e15", intra_node_bps="1e12")
    assert quick.tail[0, 0] > timing(zero="1", dp="1", global_batch="4").tail[0, 0] / 16


@pytest.mark.parametrize("zero", ["0", "1"])
def test_a_single_replica_reduces_nothing(zero: str) -> None:
    alone = explain(resolve(table_reader.parse({**SHAPE, "dp": "1", "global_batch": "4", "zero": zero})))
    assert alone.answer.exposed_comm_s == 0.0


def test_gradients_in_half_precision_take_half_of_the_time() -> None:
    shape = {"zero": "0", "inter_node_bps": "1e9", "schedule": "gpipe"}
    alone = timing(dp="1", global_batch="4", zero="0", schedule="gpipe").tail[0, 0]
    full, half = (timing(**shape, gradient_dtype=kind).tail[0, 0] - alone for kind in ("fp32", "bf16"))
    assert full / half == pytest.approx(2.0, rel=1e-3)


def test_a_bucket_of_known_size_remains() -> None:
    """Everything hides but the last 16 MB of gradients in fp32 (4 million parameters, 8 MB of weights): each
    way over 8 ranks at NVLink speed, then over 2 nodes."""
    quick = {"zero": "1", "intra_node_bps": "1e13", "inter_node_bps": "1e12", "micro_batch": "4"}
    alone = timing(**{**quick, "dp": "1", "global_batch": "4"}).tail[0, 0]
    update = alone / 16  # the optimiser is sharded over dp
    found = timing(**quick, bucket_bytes="16e6", global_batch="64").tail[0, 0] - update
    expected = sum(
        7 * 3e-6 + 7 / 8 * size * 8 / 1e13 + 8e-6 + size / 8 / 2 * 8 / 1e12 for size in (16e6, 8e6)
    )
    assert found / 1e9 == pytest.approx(expected, rel=1e-3)


def test_without_overlap_all_of_it_follows_the_backward() -> None:
    late, beside = (timing(zero="1", overlap_reduction=said).tail[0, 0] for said in ("no", "yes"))
    assert late > 4 * beside
    assert timing(zero="0", overlap_reduction="yes").tail[0, 0] < timing(zero="0").tail[0, 0]
