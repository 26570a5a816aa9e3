from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.pipeline import critical_cycle
from twin.pipeline.kernel import iteration_ns
from twin.pipeline.pipeline import Pipeline, warmup_depths


def uniform(stages: int, m: int, occupancy: int, latency: int, p2p: str, schedule: str = "1f1b") -> Pipeline:
    inner = stages - 1
    return Pipeline.single(
        [10] * stages, [20] * stages, [occupancy] * inner, [latency] * inner, [occupancy] * inner,
        [latency] * inner, [0] * stages, micro_batches=m, p2p=p2p, schedule=schedule,
    )  # fmt: skip


@st.composite
def shapes(draw: st.DrawFn) -> tuple[dict[str, object], list[int], str]:
    stages = draw(st.integers(1, 5))
    times = st.integers(1, 100)
    rows = {
        name: draw(st.lists(times, min_size=n, max_size=n))
        for name, n in (("tf", stages), ("tb", stages), ("tail", stages))
    } | {
        name: draw(st.lists(times, min_size=stages - 1, max_size=stages - 1))
        for name in ("of", "lf", "ob", "lb")
    }
    extra = sorted(draw(st.lists(st.integers(0, 3), min_size=stages, max_size=stages)), reverse=True)
    return rows, extra, draw(st.sampled_from(("blocking", "overlapped", "rendezvous")))


@given(shapes(), st.sampled_from(("1f1b", "gpipe")))
@settings(max_examples=300, deadline=None)
def test_the_kernel_settles_into_the_named_cycle(
    shape: tuple[dict[str, list[int]], list[int], str], how: str
) -> None:
    """After the start has died out, N more micro-batches cost exactly N periods where N periods are whole."""
    rows, extra, p2p = shape
    stages = len(rows["tf"])

    def pipeline(m: int) -> Pipeline:
        depths = warmup_depths(stages, m, extra)
        return Pipeline.single(**rows, micro_batches=m, p2p=p2p, schedule=how, warmup=depths)

    found = critical_cycle.binding(pipeline(100))
    whole = 2520 * found.period_ns.denominator  # every denominator up to 10
    times = [int(iteration_ns(pipeline(m))[0]) for m in (3000, 3000 + whole)]
    assert Fraction(times[1] - times[0], whole) == found.period_ns


def test_form_3_of_the_specification() -> None:
    # two stages, t = 30 each, L = 5 + 40 each way: the round trip carries two micro-batches
    pipeline = uniform(2, 8, 5, 40, "overlapped")
    found = critical_cycle.binding(pipeline)
    assert found.period_ns == Fraction(30 + 30 + 2 * 45, 2)
    assert (found.first, found.last, str(found)) == (0, 1, "stages 0-1 and back")
    assert critical_cycle.iteration_ns(pipeline) == 60 + 90 + 7 * 75


def test_blocking_counts_what_the_turning_stages_wait_for() -> None:
    found = critical_cycle.binding(uniform(2, 8, 5, 40, "blocking"))
    # the cycle of both stages is 150 / 2 = 75 as above; a single stage waits for its own send: 30 + 45 = 75
    assert found.period_ns == 75
    middle = critical_cycle.binding(uniform(3, 8, 5, 40, "blocking"))
    assert (middle.period_ns, str(middle)) == (30 + 45 + 45, "stage 1")


def test_rendezvous_counts_what_stages_wait_to_receive() -> None:
    # slower downstream than upstream: the last stage waits 45 for each forward, the first 5 for each gradient
    slow = Pipeline.single(
        [10] * 3, [20] * 3, [5, 5], [40, 40], [5, 5], [0, 0], [0] * 3, micro_batches=8, p2p="rendezvous"
    )
    found = critical_cycle.binding(slow)
    assert (found.period_ns, str(found)) == (10 + 20 + 45 + 5, "stage 1")
    phases = critical_cycle.binding(uniform(3, 8, 15, 99, "rendezvous", "gpipe"))
    assert phases.period_ns == (10 + 114) + (20 + 114)


def test_a_saturated_link_is_named() -> None:
    found = critical_cycle.binding(uniform(2, 8, 500, 0, "overlapped"))
    # of + ob are two links; a round trip of 1,060 carries two micro-batches: the pace is the round trip's
    assert (found.period_ns, found.kind) == (530, "stages")
    deep = Pipeline.single(
        [10] * 2, [20] * 2, [500], [0], [0], [0], [0] * 2, micro_batches=20, p2p="overlapped",
        warmup=warmup_depths(2, 20, [5, 0]),
    )  # fmt: skip
    assert (critical_cycle.binding(deep).period_ns, str(critical_cycle.binding(deep))) == (
        500,
        "link 0-1 forward",
    )


def test_the_slowest_stage_is_named() -> None:
    pipeline = Pipeline.single([10, 50, 10], [20, 90, 20], *[[0, 0]] * 4, [0] * 3, micro_batches=9)
    found = critical_cycle.binding(pipeline)
    assert (found.period_ns, str(found)) == (140, "stage 1")
    # stage 1 starts at 10 and never waits, stage 0 ends 20 after it; the closed form adds stage 2
    assert iteration_ns(pipeline)[0] == 10 + 9 * 140 + 20
    assert critical_cycle.iteration_ns(pipeline) == 10 + 9 * 140 + 20 + 30


def test_gpipe_has_a_pace_per_phase() -> None:
    found = critical_cycle.binding(uniform(3, 8, 15, 99, "overlapped", "gpipe"))
    assert (found.period_ns, found.kind) == (15 + 20, "phases")  # the link paces forwards, compute backwards


@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_closed_form_is_exact_for_equal_stages_without_delays(schedule: str, p2p: str) -> None:
    pipeline = uniform(4, 12, 0, 0, p2p, schedule)
    assert critical_cycle.iteration_ns(pipeline) == iteration_ns(pipeline)[0]
