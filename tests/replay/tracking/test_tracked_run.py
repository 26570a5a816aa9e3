"""A run as trackers know it: its series sum to the figures of the run."""

from pathlib import Path

import pytest

from ingest.core.errors import NotFoundError
from replay.sql.query import query
from replay.store import run_index
from replay.tracking.tracked_run import tracked


def test_series_end_at_the_sums_of_the_run(kept_store: Path) -> None:
    run = next(one for one in run_index.all_ids(kept_store) if "static" in one)
    found = tracked(kept_store, run)
    (facts,) = query(kept_store, f"SELECT * FROM runs WHERE run = '{run}'").to_pylist()
    assert found.project == "tri-7b" and found.parameters["policy"] == "static"
    assert found.tags["twin.links"] == "SYNTHETIC" and found.tags["twin.digest"] == facts["digest"]
    done = found.series["so_far/tokens"].points
    assert done[-1].value == found.figures["tokens"] == facts["tokens"]
    assert done[-1].step == facts["iterations"] and [one.step for one in done] == sorted(
        one.step for one in done
    )
    times = [one.epoch_ms for one in done]
    assert times == sorted(times) and found.began_ms < times[0] and times[-1] <= found.ended_ms
    assert times[-1] - found.began_ms <= 1000 * facts["horizon_s"]
    assert 0 < found.series["utilisation"].points[0].value < 1
    assert found.series["decision/moves"].points[-1].value == facts["moves"] == 0
    assert {one.counts for one in found.series.values()} == {"iteration", "decision"}


def test_a_run_that_is_not_there(kept_store: Path) -> None:
    with pytest.raises(NotFoundError, match="no-such-run"):
        tracked(kept_store, "no-such-run")
