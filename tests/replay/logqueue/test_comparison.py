from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from replay.logqueue.comparison import USUAL, compare
from tests.support import queue_log
from twin.queue.rules import INSTANT

LOG = queue_log.TARGET


def test_the_shipped_log_is_the_one_that_is_made() -> None:
    assert LOG.read_text(encoding="utf-8") == queue_log.made()
    assert queue_log.SESSIONS.read_text(encoding="utf-8") == queue_log.sessions()


def test_every_scheduler_gets_the_same_jobs() -> None:
    found = compare(LOG)
    assert tuple(found.figures) == USUAL
    assert {one.jobs for one in found.figures.values()} == {400}
    waits = {name: one.avg_wait_s for name, one in found.figures.items()}
    assert waits["easy"] < waits["fcfs"] and waits["easy-sjbf"] < waits["fcfs"]


def test_the_object_for_programs() -> None:
    made = compare(
        LOG, ["easy", "saf+easy", "easy"], processors=32, prediction="actual", rules=INSTANT
    ).to_json()
    assert made["schema"] == "twin.queue/1"
    assert [one["policy"] for one in made["results"]] == ["easy", "saf+easy"]
    assert (made["processors"], made["prediction"], made["rules"]) == (32, "actual", "instant")
    assert made["rejected"] == sum(made["rejected_by_reason"].values()) > len(made["rejected_rows"]) - 1
    first = made["results"][0]
    assert first["jobs"] == 400 - made["rejected"] and 0 < first["utilisation"] <= 1
    assert (
        first["avg_bounded_slowdown"] >= 1 and first["p95_bounded_slowdown"] >= 1 and first["avg_wait_s"] >= 0
    )


def test_users_who_wait_for_results_load_a_crowded_machine_less() -> None:
    recorded, following = (
        compare(queue_log.SESSIONS, ["fcfs"], processors=40, dependencies=asked) for asked in (False, True)
    )
    assert following.figures["fcfs"].avg_wait_s < recorded.figures["fcfs"].avg_wait_s
    assert [one.to_json()["dependent_jobs"] for one in (recorded, following)] == [0, 154]


def test_a_mistake_is_told_before_the_log_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown policy"):
        compare(tmp_path / "nothing.swf", ["nobody"])
    with pytest.raises(UsageError, match="0 processors"):
        compare(LOG, processors=0)
