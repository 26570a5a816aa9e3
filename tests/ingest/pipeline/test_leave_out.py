"""Files that a data set says are not to be read."""

from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from ingest.parsing import dataset
from tests.support.formats import LINKS, link
from tests.support.kit import lines
from tests.support.sets import Sets


def test_the_reason_is_shown_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "results" / "deep").mkdir(parents=True)
    for name in ("a.csv", "results/b.csv", "results/deep/c.csv"):
        (folder / name).write_bytes(lines(LINKS, link(src=name[-5])))
    (folder / "dataset.toml").write_text('[leave_out]\n"results/*" = "computed, not measured"\n')
    sets = Sets(tmp_path, tmp_path / "store", "set")
    assert [file.skipped_reason for file in sets.report.files] == [None, *["computed, not measured"] * 2]
    assert sets.one("SELECT src FROM link_samples") == "a"


def test_leaving_out_more_does_not_reread_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.csv").write_bytes(lines(LINKS, link()))
    Sets(tmp_path, tmp_path / "store", "set")
    (folder / "dataset.toml").write_text('[leave_out]\n"b.*" = "notes"\n')
    (file,) = Sets(tmp_path, tmp_path / "store", "set").report.files
    assert file.already


@pytest.mark.parametrize("entry", ["[]", "{x = 1}", '"x"'])
def test_what_is_no_pattern_with_a_reason_is_an_error(entry: str, tmp_path: Path) -> None:
    (tmp_path / "dataset.toml").write_text(f"leave_out = {entry}\n")
    with pytest.raises(UsageError, match="leave_out"):
        dataset.options(tmp_path)
