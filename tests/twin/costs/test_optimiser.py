import numpy as np
import pytest

from twin.core.gpu_models import preset
from twin.costs.memory import state_bytes_per_parameter
from twin.costs.optimiser import on_gpu_s, on_host_s


def test_adam_on_the_gpu_by_hand() -> None:
    # a billion parameters move 30 GB at three quarters of 2,039 GB/s
    assert on_gpu_s(preset("A100-80"), 1e9) == pytest.approx(30e9 / (0.75 * 2039e9), rel=1e-12)


@pytest.mark.parametrize(("gpu", "lane"), [("V100-32", 15.75e9), ("A100-80", 31.5e9), ("H100", 63e9)])
def test_adam_on_the_host_by_hand(gpu: str, lane: float) -> None:
    # 30 GB at three quarters of an eighth of 409.6 GB/s, then 2 GB over PCIe
    expected = 30e9 / (0.75 * 51.2e9) + 2e9 / lane
    assert on_host_s(preset(gpu), 1e9) == pytest.approx(expected, rel=1e-12)
    assert on_host_s(preset(gpu), np.array([1e9, 2e9])).tolist() == pytest.approx([expected, 2 * expected])


def test_offloaded_states_leave_weights_and_gradients() -> None:
    assert state_bytes_per_parameter(0, 1, offloaded=True) == 6
    assert state_bytes_per_parameter(2, 8, offloaded=True) == 2 + 4 / 8
