import pytest

from ingest.core.errors import UsageError
from twin.cases import table_reader
from twin.cases.answer import answer
from twin.cases.column_definitions import BadCellError, Cell
from twin.cases.inverse import InverseSolution, Target, solve
from twin.cases.resolve import resolve


def cells(**text: str) -> dict[str, Cell]:
    return table_reader.parse(text)


TWO_SITES = cells(
    layers="16", hidden="4096", seq="2048", tp="4", pp="2", dp="2", global_batch="64", domains="2",
    wan_bps="1e9", wan_latency_s="0.01",
)  # fmt: skip


def find(column: str, target: str, of: dict[str, Cell] = TWO_SITES) -> InverseSolution:
    return solve(of, column, Target.parse(target))


def figure(of: dict[str, Cell], name: str) -> float:
    return float(getattr(answer(resolve(of)), name))


def test_the_bandwidth_found_reaches_the_target_and_less_does_not() -> None:
    found = find("wan_bps", "utilisation=0.6")
    assert found.value is not None
    assert figure({**TWO_SITES, "wan_bps": (found.value,)}, "utilisation") >= 0.6
    assert figure({**TWO_SITES, "wan_bps": (found.value * 0.999,)}, "utilisation") < 0.6


def test_the_longest_latency_that_still_does() -> None:
    goal = figure(TWO_SITES, "iter_s") * 1.1
    found = find("wan_latency_s", f"iter_s={goal}")
    assert found.value is not None and found.value > 0.01
    assert figure({**TWO_SITES, "wan_latency_s": (found.value,)}, "iter_s") <= goal
    assert figure({**TWO_SITES, "wan_latency_s": (found.value * 1.001,)}, "iter_s") > goal


def test_out_of_reach_says_the_best() -> None:
    found = find("wan_bps", "utilisation=0.999")
    assert found.value is None
    assert found.figure == pytest.approx(figure({**TWO_SITES, "wan_bps": (1e15,)}, "utilisation"))
    assert "no wan_bps reaches" in found.note


def test_any_value_does() -> None:
    assert find("wan_latency_s", "utilisation=0.0001").note == "any wan_latency_s reaches utilisation=0.0001"


def test_fewest_gpus_smallest_batch_largest_batch() -> None:
    one = cells(layers="8", hidden="2048", tp="2", global_batch="32")
    goal = figure({**one, "gpus": 8}, "iter_s")
    assert find("gpus", f"iter_s={goal}", one).value == 8
    two = cells(layers="8", hidden="2048", pp="4", global_batch="32")
    goal = figure({**two, "global_batch": 16}, "utilisation")
    assert find("global_batch", f"utilisation={goal}", two).value == 16
    goal = figure({**two, "global_batch": 16}, "iter_s")
    assert find("global_batch", f"iter_s={goal}", two).value == 16
    goal = figure({**two, "micro_batch": 8}, "peak_mem_bytes")
    assert find("micro_batch", f"peak_mem_bytes={goal}", two).value == 8


@pytest.mark.parametrize("text", ["utilisation", "speed=3", "iter_s=fast"])
def test_a_target_that_means_nothing(text: str) -> None:
    with pytest.raises(UsageError):
        Target.parse(text)


def test_what_cannot_be_solved_for() -> None:
    with pytest.raises(UsageError, match="did you mean 'wan_bps'"):
        find("wan_bp", "iter_s=1")
    with pytest.raises(BadCellError, match="no wide-area boundary"):
        find("wan_bps", "iter_s=1", cells(layers="8", hidden="2048", global_batch="8"))
    with pytest.raises(BadCellError, match="measured"):
        find(
            "wan_bps", "iter_s=1",
            cells(micro_batches="4", stage_forward_s="1;1", stage_backward_s="2", boundary_transfer_s="0.1"),
        )  # fmt: skip
