import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S
from twin.settings.window import SeriesIdentity, TimeSpan, known_ns, known_share, split

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
    begin, until = SeriesIdentity(first + start, end - start, "").extent(window, stretch)
    assert begin <= first <= begin + 2_000 and until - 2_000 <= last <= until


@pytest.mark.parametrize(
    ("begin", "known", "share"), [(300, 300, 0.3), (700, 700, 0.7), (900, 700, 0.7)], ids=str
)
def test_a_span_is_learned_from_nothing_that_comes_after_its_beginning(begin, known, share) -> None:
    span = TimeSpan(begin * S, 950 * S, 1000 * S)
    assert split(1000 * S, span) == (begin * S, 950 * S)
    assert (known_ns(1000 * S, span), known_share(span)) == (known * S, share)
    assert known_ns(1000 * S, "train") == 700 * S and known_share("train") == 0.7
    with pytest.raises(NotFoundError, match=f"ends at 900 s; {begin} to 950 s of it were run"):
        split(900 * S, span)


@pytest.mark.parametrize("stretch", [1.0, 4.0])
def test_a_span_tells_when_the_series_began_and_ended(stretch: float) -> None:
    first, last = 1_700_000_000_123_456_789, 1_700_000_000_123_456_789 + 8_640_007_654_321
    span = TimeSpan(100 * S, 230 * S, round((last - first) * stretch))
    begin, until = SeriesIdentity(
        first + span.from_ns,
        130 * S,
        "",
    ).extent(span, stretch)
    assert begin <= first <= begin + 2_000 and until - 2_000 <= last <= until
