"""What an interval that holds 80 % does by chance in tables of few rows."""

import pytest

from benchmarks.twin.fidelity_aims import Share


def test_the_binomial_by_hand() -> None:
    """Of five rows: none or one in 0.7 % of tables, two or fewer in 5.8 %, all five in 33 %."""
    assert Share(0, 5).by_chance == (2, 5)
    assert Share(0, 1).by_chance == (0, 1)
    low, high = Share(0, 1296).by_chance
    assert low < 0.8 * 1296 < high and high - low == pytest.approx(2 * 1.96 * (1296 * 0.16) ** 0.5, abs=1)


@pytest.mark.parametrize(
    ("inside", "rows", "verdict"),
    [(8, 10, "holds"), (10, 10, "by chance"), (4, 10, "misses"), (55, 73, "by chance"), (40, 73, "misses")],
)
def test_verdicts(inside: int, rows: int, verdict: str) -> None:
    assert Share(inside, rows).verdict == verdict
