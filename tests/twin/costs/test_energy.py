import numpy as np
import pytest
from pydantic import ValidationError

from tests.support.plays import hold, play
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.gpu_models import PRESETS, preset
from twin.costs.energy import busy_w, energy_j, wait_w
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import plan_costs
from twin.scenario.prepare import PreparedScenario


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


def sites(**of_the_first: float) -> PreparedScenario:
    domains = [{"name": f"d{k}", "gpus": 4, **(of_the_first if k == 0 else {})} for k in range(3)]
    return toy_setup(3, cluster=toy_scenario().cluster.model_dump() | {"domains": domains})


def test_a_site_draws_more_than_its_gpus_busy_waiting_and_idle_alike() -> None:
    plain, worse = (Estimator(made.cluster, made.job) for made in (sites(), sites(pue=1.5)))
    here = plain.make((0,), (plain.n_layers,), 1, ((2, 2),), 1)
    both = plain.make((0, 1), (17, 17), 1, ((2, 2), (2, 2)), 1)
    for plan, factor in ((here, 1.5), (both, 1.25)):
        one, other = (plan_costs(of, plan, np.ones(3)) for of in (plain, worse))
        for name in ("wait_w", "idle_w"):
            assert getattr(other, name) == pytest.approx(factor * getattr(one, name), rel=1e-12)
        assert 1.0 < other.busy_j / one.busy_j <= 1.5
    one, other = (plan_costs(of, here, np.ones(3)) for of in (plain, worse))
    assert other.energy_j(10**9, 2.0) == pytest.approx(1.5 * one.energy_j(10**9, 2.0), rel=1e-12)
    assert other.gpu_usd(10**9) == one.gpu_usd(10**9)


def test_a_replay_charges_the_site() -> None:
    joules = []
    for made in (sites(), sites(pue=1.2)):
        estimator = Estimator(made.cluster, made.job)
        events = play(made, hold(estimator.make((0,), (estimator.n_layers,), 1, ((2, 2),), 1)))
        joules.append(sum(event.payload.get("energy_j", 0.0) for event in events))
    assert joules[0] > 0 and joules[1] == pytest.approx(1.2 * joules[0], rel=1e-9)


def test_a_scenario_that_sets_no_overhead_is_written_as_before() -> None:
    plain, worse = (
        made.scenario.cluster.model_dump(mode="json")["domains"] for made in (sites(), sites(pue=1.2))
    )
    assert "pue" not in plain[0] and worse[0]["pue"] == 1.2 and "pue" not in worse[1]
    assert sites(pue=1.0).scenario.model_dump_json() == sites().scenario.model_dump_json()
    assert (
        type(sites().scenario).model_validate(sites(pue=1.2).scenario.model_dump()) == sites(pue=1.2).scenario
    )
    with pytest.raises(ValidationError, match="pue"):
        sites(pue=0.9)
