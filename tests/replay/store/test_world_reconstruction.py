"""Runs of the past in a lake that has grown since: audited and asked what if in the world they saw."""

from pathlib import Path

import pytest

from ingest.core.errors import InputError
from replay.audit import audit, rerun
from replay.log.run_log import RunReader
from replay.run import branching, runner, whatif
from replay.run.runner import RunResult
from replay.store import run_index
from replay.store.run_header import from_payload
from tests.support.measured_pair import SAME, measured, put
from tests.support.worlds import toy_scenario
from twin.scenario.prepare import Scenario


def scenario() -> Scenario:
    return toy_scenario(wan={"dataset": "own", "streams": 1, "cap_bps": 1e11})


@pytest.fixture
def base(tmp_path: Path) -> RunResult:
    put(tmp_path, measured(60))
    return runner.run(tmp_path / "store", policy="greedy", scenario=scenario())


def header_of(store: Path, run_id: str) -> dict:
    return RunReader(run_index.folder(store, run_id)).header()


GROWN = {
    "a longer file": (measured(75), "links.csv"),
    "a later file": (measured(75, 60), "later.csv"),
    "an earlier file": (measured(61).replace("2026-03-01", "2026-02-01"), "earlier.csv"),
}


@pytest.mark.parametrize("more", GROWN)
def test_a_run_is_recomputed_in_its_own_world(tmp_path: Path, base: RunResult, more: str) -> None:
    store = tmp_path / "store"
    put(tmp_path, *GROWN[more])
    report = audit.audit(store, base.run_id)
    assert report.ok and report.notes == (), report
    assert rerun.recompute(store, base.run_id).equal
    found = whatif.what_if(store, base.run_id, links=[SAME])
    assert found.differences["tokens"] == 0
    ours, theirs = header_of(store, base.run_id), header_of(store, found.run_id)
    for name in ("origin_epoch_ns", "end_ns"):
        assert ours[name] == theirs[name]
    assert ours["traces"]["source"] == theirs["traces"]["source"]
    assert audit.audit(store, found.run_id).notes == ()


@pytest.mark.parametrize("window", ["train", "validate", "test", "all"])
def test_a_what_if_that_ended_early_still_knows_its_window(tmp_path: Path, window) -> None:
    store = tmp_path / "store"
    put(tmp_path, measured(60))
    base = runner.run(store, policy="static", scenario=scenario(), window=window)
    first = whatif.what_if(store, base.run_id, "single", until_s=200.0)
    put(tmp_path, measured(75))
    second = whatif.what_if(store, first.run_id, "greedy", until_s=100.0)
    for run_id in (first.run_id, second.run_id):
        report = audit.audit(store, run_id)
        assert report.ok and report.notes == (), report


def test_changed_samples_are_reported_and_nothing_is_compared(tmp_path: Path, base: RunResult) -> None:
    store, count = tmp_path / "store", len(run_index.all_ids(tmp_path / "store"))
    put(tmp_path, measured(60).replace("T00:50:00Z,d0,d1,", "T00:50:00Z,d0,d1,1"))
    report = audit.audit(store, base.run_id)
    assert report.ok
    assert report.notes == (
        "not executed again: link samples of own from that time are no longer those that the run saw",
    )
    for asked in ({"policy": "static"}, {"links": [SAME]}):
        with pytest.raises(InputError, match=r"of own from that time .* run toy-3 anew"):
            whatif.what_if(store, base.run_id, **asked)  # type: ignore[arg-type]
    assert len(run_index.all_ids(store)) == count, "nothing was begun"


def test_links_that_other_code_makes_of_the_same_samples_are_not_compared(
    tmp_path: Path, base: RunResult
) -> None:
    header = from_payload(header_of(tmp_path / "store", base.run_id))
    left = branching.branch(tmp_path / "store", header, base.run_id, "static", None, 0, None)
    with pytest.raises(InputError, match="this code makes other links of the same samples"):
        branching.refuse_another_world(left, ("window",))
