"""Money and MFU of training against sums done by hand."""

from dataclasses import replace

import pytest

from ingest.core.errors import UsageError
from replay.metrics.formatting import unpriced_text
from tests.support.worlds import toy_setup
from twin.estimation.estimator import Estimator
from twin.estimation.training_cost import TrainingCost, of_iteration, token_count

HAND = TrainingCost(
    tokens=2e6, seconds=100.0, rent_usd=3.0, egress_usd=1.0, energy_j=3.6e6, model_flops=4e15, peak_flops=1e16
)
"""2 M tokens in 100 s for 3 USD of rent and 1 of egress, 1 kWh, 40 % of the peak."""


def test_by_hand() -> None:
    assert (HAND.tokens_per_s, HAND.mfu, HAND.total_usd) == (20_000, 0.4, 4.0)
    assert HAND.per_billion_tokens() == {
        "total": 2000.0,
        "rent": 1500.0,
        "egress": 500.0,
        "energy_kwh": 500.0,
    }
    whole = HAND.of(1e12)
    assert whole is not None and whole.seconds == 5e7 and whole.total_usd == 2e6
    assert whole.mfu == pytest.approx(0.4)
    assert replace(HAND, tokens=0.0).of(1e12) is None


def test_an_iteration_by_hand() -> None:
    """Two sites of four A100 at 5 USD an hour, llama2-7b, 32 sequences of 4,096 tokens, 0.02 USD a GB."""
    setup = toy_setup()
    estimator = Estimator(setup.cluster, setup.job)
    plan = estimator.make((0, 1), (17, 17), 1, ((4, 1), (4, 1)), 1)
    estimate = estimator.iteration(plan, setup.wan.at(0))
    found = of_iteration(estimator, plan, estimate)
    assert found.tokens == 32 * 4096
    assert found.rent_usd == pytest.approx(8 * 5.0 * estimate.iter_s / 3600)
    message_bytes = 4096 * 4096 * 2
    assert found.egress_usd == pytest.approx(32 * 2 * message_bytes / 1e9 * 0.02)
    done = setup.job.model.flops_per_sequence * 32
    assert found.mfu == pytest.approx(done / (8 * 312e12 * estimate.iter_s))
    each = found.per_billion_tokens()
    assert each["total"] == pytest.approx(each["rent"] + each["egress"])  # type: ignore[operator]
    assert each["total"] == pytest.approx((found.rent_usd + found.egress_usd) / (32 * 4096) * 1e9)


def test_gpus_without_a_price_are_named() -> None:
    setup = toy_setup()
    domains = tuple(
        replace(one, usd_per_gpu_hour=0.0 if k == 1 else 5.0) for k, one in enumerate(setup.cluster.domains)
    )
    estimator = Estimator(replace(setup.cluster, domains=domains), setup.job)
    plan = estimator.make((0, 1), (17, 17), 1, ((4, 1), (4, 1)), 1)
    found = of_iteration(estimator, plan, estimator.iteration(plan, setup.wan.at(0)))
    assert found.unpriced == ("d1 (A100-80)",)
    assert unpriced_text(found.unpriced).startswith("the rent of the GPUs in d1 (A100-80) is not known")
    assert unpriced_text(()) == ""


@pytest.mark.parametrize(
    ("text", "tokens"), [("1T", 1e12), ("300B", 3e11), ("1.5e12", 1.5e12), ("15t", 1.5e13), ("2,000", 2000)]
)
def test_numbers_of_tokens(text: str, tokens: float) -> None:
    assert token_count(text) == tokens


@pytest.mark.parametrize("text", ["", "0", "-1", "T", "1X", "inf", "nan", "1e19", "9" * 400])
def test_what_is_no_number_of_tokens_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="tokens"):
        token_count(text)
