"""Progress of work whose pace changes."""

from hypothesis import given
from hypothesis import strategies as st

from twin.network.variable_rate_work import Work


def end_ns(work: Work) -> int | None:
    return None if work.stalled else work.since_ns + work.left_ns


def test_constant_pace_ends_after_its_full_time() -> None:
    work = Work(5, 100)
    work.settle(45)
    assert (work.left_ns, end_ns(work)) == (60, 105)


def test_a_new_pace_keeps_the_fraction_still_to_do() -> None:
    work = Work(0, 100)
    work.set_full_time(40, 50)  # 60 % left
    assert end_ns(work) == 40 + 30
    work.set_full_time(50, 200)  # 20 of 50 left
    assert end_ns(work) == 50 + 80


def test_nothing_moves_without_a_pace() -> None:
    work = Work(0, 100)
    work.set_full_time(25, None)
    assert work.stalled and end_ns(work) is None
    work.set_full_time(1_000, 100)
    assert end_ns(work) == 1_075


def test_work_that_begins_stalled_is_all_left() -> None:
    work = Work(0, None)
    work.settle(70)
    work.set_full_time(80, 33)
    assert end_ns(work) == 113


def test_work_of_no_length_is_done() -> None:
    work = Work(3, 0)
    work.set_full_time(3, 10)
    assert work.left_ns == 0 and work.done == (10, 10)


@given(st.integers(1, 10**15), st.lists(st.integers(0, 10**14), max_size=8))
def test_an_unchanged_rate_changes_nothing(full_ns: int, times: list[int]) -> None:
    work = Work(0, full_ns)
    for now in sorted(times):
        if now < full_ns:
            work.set_full_time(now, full_ns)
    assert end_ns(work) == full_ns
