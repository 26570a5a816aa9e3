"""Progress of work whose pace changes."""

from hypothesis import given
from hypothesis import strategies as st

from twin.network.variable_rate_work import Work


def test_constant_pace_ends_after_its_full_time() -> None:
    work = Work(5, 100)
    work.settle(45)
    assert (work.left_ns, work.end_ns) == (60, 105)


def test_a_new_pace_keeps_the_fraction_still_to_do() -> None:
    work = Work(0, 100)
    work.repace(40, 50)  # 60 % left
    assert work.end_ns == 40 + 30
    work.repace(50, 200)  # 20 of 50 left
    assert work.end_ns == 50 + 80


def test_nothing_moves_without_a_pace() -> None:
    work = Work(0, 100)
    work.repace(25, None)
    assert work.stalled and work.end_ns is None
    work.repace(1_000, 100)
    assert work.end_ns == 1_075


def test_work_that_begins_stalled_is_all_left() -> None:
    work = Work(0, None)
    work.settle(70)
    work.repace(80, 33)
    assert work.end_ns == 113


def test_work_of_no_length_is_done() -> None:
    work = Work(3, 0)
    work.repace(3, 10)
    assert work.left_ns == 0 and work.done == (10, 10)


@given(st.integers(1, 10**15), st.lists(st.integers(0, 10**14), max_size=8))
def test_the_same_pace_again_changes_nothing(full_ns: int, times: list[int]) -> None:
    work = Work(0, full_ns)
    for now in sorted(times):
        if now < full_ns:
            work.repace(now, full_ns)
    assert work.end_ns == full_ns
