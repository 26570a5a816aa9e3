"""A series without dates is laid at an arbitrary day only with a word in the table and in the lake."""

from pathlib import Path

from ingest.lake import lake
from ingest.lake.undated import UNDATED
from ingest.pipeline.ingest import ingest
from tests.support.kit import lines
from tests.support.kits_operators import DMON, dmon


def test_an_invented_year_is_said_in_the_report_and_kept_in_the_lake(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.txt").write_bytes(lines(*DMON, dmon()))
    report = ingest([folder], tmp_path / "store")
    assert report.notes == (f"set: {UNDATED}",)
    assert report.to_json()["files"][0]["undated"] is True
    assert UNDATED in lake.datasets(tmp_path / "store")["set"].meta["assumptions"]


def test_a_stated_start_is_no_invention(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.txt").write_bytes(lines(*DMON, dmon()))
    (folder / "dataset.toml").write_text("start = 2026-03-01T00:00:00Z\n")
    report = ingest([folder], tmp_path / "store")
    assert report.notes == ()
    assert report.to_json()["files"][0]["undated"] is False
