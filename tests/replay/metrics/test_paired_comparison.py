import numpy as np
import pytest
from scipy import stats

from replay.metrics import paired_comparison
from replay.metrics.paired_comparison import BLOCKS, STRETCH, TimeBlocks, clustered, student


def blocks(tokens: list[float], compute: float = 1.0, usd: float = 1.0) -> TimeBlocks:
    n = len(tokens)
    return TimeBlocks(np.array(tokens), np.full(n, compute), np.full(n, 2.0), np.full(n, usd))


def test_blocks_are_paired() -> None:
    noise = np.random.default_rng(0).normal(100, 30, 24)  # shared by both: it must cancel
    tokens, utilisation, price = paired_comparison.judge([blocks(list(noise))], [blocks(list(noise + 2))])
    assert tokens.better and tokens.mean == pytest.approx(2 / noise.mean())
    assert tokens.low == pytest.approx(tokens.high)
    assert utilisation.mean == 0 and not utilisation.better and not utilisation.worse
    assert price.mean > 0  # the same money for more tokens


def test_the_interval_of_one_world_by_hand() -> None:
    # Circular stretches of 6 in 12 blocks: those that begin at 0 .. 11 hold 6, 5, .. 0, .. 5 ones.
    ones = np.array([[1.0] * STRETCH + [0.0] * STRETCH])
    means = np.array([6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5]) / 6
    half = stats.t.ppf(0.975, 1) * np.sqrt(means.var() / 1)  # two stretches fit: one degree of freedom
    found = clustered("x", ones)
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))


def test_what_differs_by_world_alone_has_the_interval_of_the_worlds() -> None:
    worlds = np.array([0.1, 0.3, 0.2, 0.5])
    found = clustered("x", np.repeat(worlds[:, None], BLOCKS, axis=1))
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 3, worlds.mean(), worlds.std(ddof=1) / 2)
    )
    alone = student("x", worlds)
    assert (alone.low, alone.high) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize(
    ("worlds", "correlation", "apart"), [(1, 0.0, 0.0), (5, 0.0, 2.0), (3, 0.7, 0.5), (5, 0.7, 0.0)]
)
def test_without_a_difference_one_is_hardly_ever_seen(worlds: int, correlation: float, apart: float) -> None:
    rng, reported = np.random.default_rng(1), 0
    for _ in range(400):
        hours = rng.normal(size=BLOCKS)
        for k in range(1, BLOCKS):
            hours[k] = correlation * hours[k - 1] + (1 - correlation**2) ** 0.5 * hours[k]
        own = rng.normal(scale=0.5, size=(worlds, BLOCKS)) + rng.normal(scale=apart, size=(worlds, 1))
        found = clustered("x", hours + own)
        reported += found.better or found.worse
    assert reported / 400 < 0.12  # of independent blocks of one world 45 % with such a correlation


def test_a_difference_everywhere_is_seen() -> None:
    noise = np.random.default_rng(2).normal(scale=0.05, size=(5, BLOCKS))
    assert clustered("x", 0.1 + noise).better and clustered("x", -0.1 + noise).worse


def test_an_interval_of_five_values_holds_what_it_says() -> None:
    rng, inside = np.random.default_rng(3), 0
    for case in range(200):
        verdict = paired_comparison.bootstrap(
            "x", rng.normal(0.3, 1, 5), case, lambda values: values.mean(axis=-1)
        )
        inside += verdict.low <= 0.3 <= verdict.high
    assert inside / 200 > 0.89  # plain percentiles: 83 %


def test_of_one_value_there_is_no_interval() -> None:
    found = student("x", np.array([0.4]))
    assert (found.mean, found.low, found.high) == (0.4, 0.4, 0.4)
