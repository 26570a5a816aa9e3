"""LoRA: time, memory and reduction of frozen matrices and of their adapters, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from twin.core.adapters import Adapters
from twin.core.domain import Cluster, Domain
from twin.core.gpu_models import preset as gpu
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.core.switches import Switches
from twin.core.transformer import classic
from twin.costs import memory, tied_embeddings
from twin.costs.layer_compute import layer_times
from twin.costs.memory import WORKSPACE_BYTES
from twin.costs.optimiser import on_gpu_s
from twin.costs.stage_costs import weight_share
from twin.estimation.estimator import Estimator

PLAIN = replace(preset("llama3-8b"), blocks=4)
MODEL = replace(PLAIN, adapters=Adapters(16, ("q", "v")))
H, KV, F, S, V = 4096, 1024, 14336, 8192, 128256
BLOCK = 2 * H * H + 2 * H * KV + 3 * H * F
OWN = 16 * (2 * H + H + KV)
SITE = Domain("d", gpu("H100"), 8, 8, 3.6e12, 4e11, 0.0, 0.0, 5.0)


def test_a_frozen_block_has_no_weight_gradients() -> None:
    """Beside the plain block: two thin products and additions for each of two targets; backward half of the
    products less and no gradients but those of the adapters."""
    found, plain = (layer_times(model, SITE, 1, 1, "none") for model in (MODEL, PLAIN))
    rate, memory_rate = 0.70 * SITE.gpu.peak_flops, SITE.gpu.memory_bandwidth_bytes_s
    thin, start = 2 * S * OWN / rate, 10e-6
    added = 2 * 4e-6 + 6 * S * (H + KV) / memory_rate
    assert found.forward_s[1] - plain.forward_s[1] == pytest.approx(4 * start + thin + added, rel=1e-9)
    back = 8 * start + 2 * thin + 2 * 4e-6 + (6 * S * 2 * H + 8 * OWN) / memory_rate
    saved = 4 * start + 2 * S * BLOCK / rate + 8 * BLOCK / memory_rate
    assert plain.backward_s[1] - found.backward_s[1] == pytest.approx(saved - back, rel=1e-9)
    assert plain.backward_s[-1] - found.backward_s[-1] == pytest.approx(
        start + 2 * S * H * V / rate, rel=1e-9
    )
    assert found.backward_s[0] == 0.0 < plain.backward_s[0]
    assert found.forward_s[[0, -1]].tolist() == plain.forward_s[[0, -1]].tolist()


def test_only_adapters_have_weight_gradients_to_delay() -> None:
    share = weight_share(MODEL)
    own, core = 2 * S * OWN, 4 * S * S * H
    # input gradients of all products, twice the core, both gradients of the adapters
    backward = 2 * S * BLOCK + 2 * core + 2 * own
    assert share[1:-1] == pytest.approx([own / backward] * 4, rel=1e-12)
    assert share[[0, -1]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("targets", "inputs", "inside"),
    [(("q", "v"), 1, 3), (("up",), 1, 3), (("o",), 0, 3), (("q", "gate", "down"), 2, 4)],
)
def test_inputs_of_frozen_products_are_not_kept(targets: tuple[str, ...], inputs: int, inside: int) -> None:
    made = replace(PLAIN, adapters=Adapters(16, targets))
    expected = S * H * 2 * (2 + inputs) + 2 * S * (2 * H + 2 * KV) + 2 * S * F * inside
    assert memory.block_activation_bytes(made, 1, "none", False) == expected


@pytest.mark.parametrize(("zero", "frozen", "trained"), [(0, 2, 18), (1, 2, 6 + 12 / 8), (3, 2 / 8, 18 / 8)])
def test_states_are_weights_and_those_of_the_adapters(zero: int, frozen: float, trained: float) -> None:
    made = Estimator(Cluster((SITE,), ((0.0,),)), JobSpec(MODEL, 8, (1,), zero=zero, recompute="none"))
    plan = made.make([0], [6], 8, [(1, 1)], 1)
    base = 4 * (BLOCK + 2 * H) + 2 * V * H + H
    stored = 4 * memory.block_activation_bytes(MODEL, 1, "none", True)
    head = 2 * S * H + 5 * S * V + (2 * (V * H + H) if zero >= 3 else 0)
    peak = base * frozen + 4 * OWN * trained + stored + head + WORKSPACE_BYTES
    assert made.peak_mem_bytes(plan)[0] == pytest.approx(peak, abs=2)
    costs = made.stage_costs(plan)
    assert costs.update_s[0, 0] == pytest.approx(on_gpu_s(SITE.gpu, 4 * OWN / (8 if zero else 1)), rel=1e-12)
    if zero == 0:
        assert costs.sync_s[0, 0] == pytest.approx(2 * 7 / 8 * 4 * 4 * OWN / (3.6e12 / 8), rel=1e-12)


def test_adapters_of_a_mixture_freeze_its_experts() -> None:
    made = replace(preset("mixtral-8x7b"), blocks=2, adapters=Adapters(8))
    job = JobSpec(made, 8, (1,), recompute="none", ep=(4,), switches=Switches(overlap_reduction=False))
    found = Estimator(Cluster((SITE,), ((0.0,),)), job)
    costs = found.stage_costs(found.make([0], [4], 8, [(1, 1)], 1))
    own = 2 * made.adapter_parameters
    assert costs.sync_s[0, 0] == pytest.approx(2 * 7 / 8 * 4 * own / (3.6e12 / 8), rel=1e-12)
    frozen = replace(made, adapters=None)
    slow, fast = (layer_times(model, SITE, 1, 1, "none").backward_s[1] for model in (frozen, made))
    assert np.isfinite(fast) and fast < 0.65 * slow


def test_a_frozen_tied_matrix_is_not_exchanged() -> None:
    tied = classic("g", 4, 1024, 16, 512, 50304, "bf16")
    assert tied_embeddings.step_bytes(JobSpec(tied, 8), 2) > 0
    assert tied_embeddings.step_bytes(JobSpec(replace(tied, adapters=Adapters(8)), 8), 2) == 0
