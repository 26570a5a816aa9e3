import pytest

from ingest.errors import UsageError
from ingest.units import NS_PER_S
from twin.window import Seen, split

S = NS_PER_S


def test_windows_are_disjoint_in_order_and_cover_everything() -> None:
    train, validate, test = (split(1000 * S, window) for window in ("train", "validate", "test"))
    assert train == (0, 595 * S)
    assert validate == (595 * S, 700 * S)
    assert test == (700 * S, 1000 * S)
    assert split(1000 * S, "all") == (0, 1000 * S)
    with pytest.raises(UsageError, match="did you mean 'test'"):
        split(1000 * S, "tst")  # type: ignore[arg-type]


@pytest.mark.parametrize("window", ["train", "validate", "test", "all"])
@pytest.mark.parametrize("stretch", [1.0, 4.0])
def test_a_window_tells_when_the_series_began_and_ended(window, stretch: float) -> None:
    first, last = 1_700_000_000_123_456_789, 1_700_000_000_123_456_789 + 8_640_007_654_321
    start, end = split(round((last - first) * stretch), window)
    begin, until = Seen(first + start, end - start, "").extent(window, stretch)
    assert begin <= first <= begin + 2_000 and until - 2_000 <= last <= until
