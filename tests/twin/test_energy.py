import pytest

from twin.energy import busy_w, energy_j, wait_w
from twin.gpu import PRESETS, preset


def test_energy_is_power_times_time() -> None:
    gpu = preset("A100-80")
    assert energy_j(gpu, 4, 3.0, 10.0) == pytest.approx(4 * (3 * busy_w(gpu) + 7 * wait_w(gpu)), rel=1e-12)
    assert energy_j(gpu, 4, 3.0, 10.0, pue=1.2) == pytest.approx(1.2 * energy_j(gpu, 4, 3.0, 10.0), rel=1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_power_is_ordered(name: str) -> None:
    gpu = preset(name)
    assert 0 < gpu.idle_w <= wait_w(gpu) < busy_w(gpu) < gpu.peak_w


def test_a_training_h100_draws_what_was_measured() -> None:
    # mean of eight H100 in steady data-parallel training (telemetry-h100-dcgm-10hz, t3)
    assert busy_w(preset("H100")) == pytest.approx(689, rel=0.05)
