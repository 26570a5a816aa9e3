import numpy as np
import pytest
from pydantic import ValidationError

from ingest.core.errors import UsageError
from tests.support.plays import hold, play
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.gpu_models import PRESETS, preset
from twin.costs.energy import CHIP, busy_w, clock, energy_j, limited, power_share, wait_w
from twin.costs.gpu_rates import built_in_rates, matmul_flops_s
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


def test_power_over_clock_by_hand() -> None:
    gpu = preset("H100")  # a module: voltage at its floor of 0.83 below 0.79 of the clock
    assert CHIP == (0.79, 0.83)
    assert power_share(gpu, 1.0) == 1.0
    assert power_share(gpu, 0.5) == pytest.approx(0.5 * 0.83**2, rel=1e-12)
    assert power_share(gpu, 0.9) == pytest.approx(0.9 * (1 - 0.17 * 0.1 / 0.21) ** 2, rel=1e-12)
    assert power_share(preset("A40"), 0.5) == pytest.approx(0.5 * 0.96**2, rel=1e-12)
    assert power_share(preset("A100-PCIE-80"), 0.5) == power_share(preset("L40S"), 0.5)
    assert power_share(preset("A100-40"), 0.5) == power_share(gpu, 0.5)


def test_a_power_limit_leaves_the_clock_that_draws_it() -> None:
    gpu, span = preset("H100"), 0.95 * 625  # 75 W idle, 700 W peak: 668.75 W busy
    capped = limited(gpu, 75 + span * 0.5 * 0.83**2, None)
    assert clock(capped) == pytest.approx(0.5, rel=1e-9)
    assert busy_w(capped) == capped.power_cap_w and wait_w(capped) == wait_w(gpu)
    rate = matmul_flops_s(capped, built_in_rates(capped), "bf16")
    assert rate == pytest.approx(0.5 * matmul_flops_s(gpu, built_in_rates(gpu), "bf16"), rel=1e-9)
    assert wait_w(limited(gpu, 200.0, None)) == 200.0
    loose = limited(gpu, 669.0, None)
    assert (clock(loose), busy_w(loose)) == (1.0, busy_w(gpu))


def test_a_clock_limit_lowers_power_busy_and_waiting() -> None:
    gpu = preset("H100")
    slow = limited(gpu, None, 0.5)
    assert clock(slow) == 0.5
    assert busy_w(slow) == pytest.approx(75 + 0.95 * 625 * 0.5 * 0.83**2, rel=1e-12)
    assert wait_w(slow) == pytest.approx(75 + 0.22 * 625 * 0.5 * 0.83**2, rel=1e-12)
    both = limited(gpu, 200.0, 0.5)  # the lower clock counts
    assert clock(both) < 0.5 and busy_w(both) == 200.0


@pytest.mark.parametrize(
    ("watts", "share"), [(60.0, None), (75.0, None), (130.0, None), (None, 0.1), (None, 1.5)]
)
def test_limits_under_which_nothing_computes(watts: float | None, share: float | None) -> None:
    with pytest.raises(UsageError, match=r"draws 75 W idle and 136 W|give a share of the clock"):
        limited(preset("H100"), watts, share)


def test_a_site_may_be_limited_and_a_scenario_without_limits_keeps_its_form() -> None:
    plain, made = sites(), sites(power_cap_w=250.0, clock_cap=0.9)
    first, second = (domain.gpu for domain in made.cluster.domains[:2])
    assert (first.power_cap_w, first.clock_cap) == (250.0, 0.9) and not second.limited
    written = plain.scenario.model_dump(mode="json")["cluster"]
    assert not {"power_cap_w", "clock_cap"} & (written["hardware"].keys() | written["domains"][0].keys())
    assert made.scenario.model_dump(mode="json")["cluster"]["domains"][0]["power_cap_w"] == 250.0
    slow, fast = (Estimator(one.cluster, one.job) for one in (made, plain))
    plan = fast.make((0,), (fast.n_layers,), 1, ((2, 2),), 1)
    assert slow.stage_costs(plan).forward_s[0, 0] > fast.stage_costs(plan).forward_s[0, 0]
    with pytest.raises(
        UsageError, match="domain 'd0': power_cap_w 60: a GPU of model A100-80 draws 55 W idle"
    ):
        sites(power_cap_w=60.0)
