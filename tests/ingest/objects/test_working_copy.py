"""Folders of working copies, and what is refused in them."""

from pathlib import Path

import pytest

from ingest.core.errors import DamageError, UsageError
from ingest.objects import working_copy


def test_each_store_and_each_server_has_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one")
    folder = working_copy.marked("s3://bucket/a/")
    assert folder == working_copy.marked("s3://bucket/a") and folder.is_relative_to(tmp_path)
    assert working_copy.bucket_of(folder) == "s3://bucket/a"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://two")
    assert (
        len({folder, working_copy.folder_of("s3://bucket/a"), working_copy.folder_of("s3://bucket/b")}) == 3
    )


def test_work_on_a_disk_only_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    working_copy.refuse(tmp_path, "removal")
    with pytest.raises(UsageError, match="s3://bucket/a: removal works on a store on a disk only"):
        working_copy.refuse(working_copy.marked("s3://bucket/a"), "removal")


def test_a_changed_mark_is_damage(tmp_path: Path) -> None:
    (tmp_path / working_copy.MARK).write_text('{"url": "s3://other"}')
    with pytest.raises(DamageError, match="not those that were written"):
        working_copy.bucket_of(tmp_path)
