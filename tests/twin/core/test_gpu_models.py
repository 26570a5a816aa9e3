import pytest

from ingest.core.errors import UsageError
from twin.core.gpu_models import FABRICS, PRESETS, canonical, fabric, preset


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("a100-80g", "A100-80"),
        ("NVIDIA H100", "H100"),
        ("gh_96", "GH200"),
        ("v100", "V100-32"),
        ("Titan-RTX", "TITAN-RTX"),
    ],
)
def test_spellings(spelling: str, name: str) -> None:
    assert canonical(spelling) == name


def test_unknown_models_name_the_nearest_and_how_to_define_one() -> None:
    with pytest.raises(UsageError, match=r"known: .*A100-80.*cluster.gpu_models"):
        preset("TPU")
    with pytest.raises(UsageError, match=r"nearest: H[12]00, "):
        preset("H150")
    with pytest.raises(UsageError, match="nearest: MI300X"):
        preset("MI325X")


def test_every_model_has_a_fabric_and_sane_figures() -> None:
    assert set(FABRICS) == set(PRESETS)
    for name, gpu in PRESETS.items():
        assert gpu.name == name
        assert 8e9 <= gpu.memory_bytes <= 210e9
        assert 10 < gpu.peak_flops / gpu.memory_bandwidth_bytes_s < 450
        assert fabric(name).intra_node_bps > fabric(name).inter_node_bps


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("A100-SXM-80GB", "A100-80"),
        ("Tesla V100", None),
        ("V100-SXM2-32GB", "V100-32"),
        ("H100 PCIe", None),
        ("NVIDIA H200", "H200"),
        ("gh-96", "GH200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA B200", "B200"),
        ("Titan RTX", "TITAN-RTX"),
    ],
)
def test_makers_names(name: str, ours: str | None) -> None:
    if ours is None:
        with pytest.raises(UsageError):
            canonical(name)
    else:
        assert canonical(name) == ours
