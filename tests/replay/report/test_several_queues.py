"""The page and the table of several queue runs: schedulers side by side, sorted, and which one wins."""

import re
from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from replay.logqueue import comparison, on_nodes, schedulers
from replay.report import several_runs
from tests.replay.report.test_page import Balance
from tests.support import queue_log

ORDERS = ("fcfs", "easy", "easy-sjbf", "conservative")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    store = tmp_path_factory.mktemp("queues")
    return store, comparison.compare(queue_log.TARGET, ORDERS, keep=store).runs


def test_schedulers_stand_side_by_side_with_the_best_marked(kept: tuple[Path, dict[str, str]]) -> None:
    store, runs = kept
    path = several_runs.write(store, list(runs.values()))
    page = path.read_text(encoding="utf-8")
    balance = Balance()
    balance.feed(page)
    assert balance.open == [] and path.parent == store / "reports"
    assert "<h1>4 schedulers on queue.swf</h1>" in page
    titles = re.findall(r"<h2 [^>]*>(.*?)</h2>", page)
    assert titles == ["The answer", "Over time", "Mean wait by size", "Key figures", "How to check this"]
    answer = page[page.index('id="the-answer"') : page.index('id="over-time"')]
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>', answer)
    found = schedulers.compare(store, list(runs.values()))
    assert [label for label, _ in rows] == [one.label for one in found.runs]
    waits = [one.wait_s for one in found.runs]
    assert waits == sorted(waits) and [label for label, _ in rows][-1] == "fcfs"
    assert rows[0][1].startswith('<td class="n best">') and "best" not in rows[-1][1].split("</td>")[0]
    assert page.count("chain head") >= 4 and all(run in page for run in runs.values())


def test_the_sentence_says_who_wins_and_by_how_much(kept: tuple[Path, dict[str, str]]) -> None:
    store, runs = kept
    found = schedulers.compare(store, list(runs.values()))
    first, second = found.runs[:2]
    share = 100 * (1 - first.wait_s / second.wait_s)
    assert found.verdict.startswith(f"{first.label} wins: a job waits ")
    assert f"{share:.1f} % less than under {second.label}" in found.verdict
    assert "fcfs has the longest" in found.verdict
    saved = found.saved(1)
    assert (
        saved is not None
        and saved.low < saved.value < saved.high
        and saved.value == pytest.approx(share / 100)
    )
    slow = min(found.runs, key=lambda one: one.figures["avg_bounded_slowdown"])
    assert (slow is first) or f"By mean bounded slowdown {slow.label} is best" in found.verdict


def test_the_order_of_the_words_changes_nothing(kept: tuple[Path, dict[str, str]]) -> None:
    store, runs = kept
    ids = list(runs.values())
    assert several_runs.render(store, ids) == several_runs.render(store, ids[::-1])


def test_runs_of_other_jobs_or_machines_have_no_winner(kept: tuple[Path, dict[str, str]]) -> None:
    store, runs = kept
    larger = comparison.compare(queue_log.TARGET, ("easy",), processors=96, keep=store).runs["easy"]
    found = schedulers.compare(store, [runs["easy"], larger])
    assert not found.one_workload and "no scheduler wins" in found.verdict
    assert found.best("avg_wait_s") == frozenset() and found.saved(1) is None
    page = several_runs.render(store, [runs["easy"], larger])
    assert "Different jobs or machines" in page and 'class="n best"' not in page


def test_equal_schedules_are_said_to_be_equal(kept: tuple[Path, dict[str, str]]) -> None:
    store, _ = kept
    twice = [comparison.compare(queue_log.TARGET, ("easy",), keep=store).runs["easy"] for _ in range(2)]
    found = schedulers.compare(store, twice)
    assert "have the same mean wait" in found.verdict and {one.label for one in found.runs} == set(twice)


def test_placements_on_nodes_are_compared_too(kept: tuple[Path, dict[str, str]]) -> None:
    store, _ = kept
    made = on_nodes.compare_on_nodes(
        queue_log.TARGET, "6 x 8 A100-80, 4 x 8 V100", ("easy",), ("best-fit", "packing"), keep=store
    ).runs
    found = schedulers.compare(store, list(made.values()))
    assert found.one_workload and {one.label for one in found.runs} == {"easy, best-fit", "easy, packing"}
    page = several_runs.render(store, list(made.values()))
    assert "GPUs free but of no use, mean" in page and "6 x 8 A100-80, 4 x 8 V100" in page


def test_a_run_is_not_compared_with_itself(kept: tuple[Path, dict[str, str]]) -> None:
    store, runs = kept
    for wrong in ([runs["easy"]], [runs["easy"]] * 2):
        with pytest.raises(UsageError, match="two or more different runs"):
            schedulers.compare(store, wrong)
