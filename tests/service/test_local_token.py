"""The token of a store: private, made once, found by programs of the same user and by nobody else."""

import os
from pathlib import Path

import pytest

from replay.inventory.backup import back_up
from replay.inventory.places import Folder
from service import local_token


def test_it_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        token = local_token.made(tmp_path / "store")
    finally:
        os.umask(before)
    path = local_token.path_of(tmp_path / "store")
    assert len(token) == 43 and path.stat().st_mode & 0o777 == 0o600
    assert local_token.made(tmp_path / "store") == token == path.read_text().strip()


@pytest.mark.parametrize("damage", ["others read", "empty", "link", "no text"])
def test_one_that_others_could_have_read_or_made_is_replaced(tmp_path: Path, damage: str) -> None:
    token = local_token.made(tmp_path)
    path = local_token.path_of(tmp_path)
    if damage == "others read":
        path.chmod(0o640)
    elif damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_bytes(b"" if damage == "empty" else b"\xff\xfe")
    new = local_token.made(tmp_path)
    assert new != token and path.stat().st_mode & 0o777 == 0o600 and not path.is_symlink()


def test_a_program_finds_the_token_by_the_address_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TWIN_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    token = local_token.made(tmp_path / "far" / "store")
    address = "http://127.0.0.1:8712"
    with local_token.announced(8712, tmp_path / "far" / "store"):
        note = tmp_path / "state" / "twin" / "services" / "8712"
        assert note.stat().st_mode & 0o777 == 0o600
        for name in (address, "http://localhost:8712/", "https://[::1]:8712"):
            assert local_token.find(name) == token
        for elsewhere in ("http://127.0.0.1:8713", "http://example.org:8712", "http://[", "", "x"):
            assert local_token.find(elsewhere) == ""
    assert local_token.find(address) == "" and not note.exists()


def test_without_a_note_the_store_of_the_environment_or_of_the_folder_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TWIN_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    here, there = local_token.made(tmp_path / ".twin"), local_token.made(tmp_path / "there")
    with local_token.announced(8712, tmp_path / "there"):  # no home to write to: no failure
        assert local_token.find("http://127.0.0.1:8712") == here
        monkeypatch.setenv("TWIN_STORE", str(tmp_path / "there"))
        assert local_token.find("http://127.0.0.1:8712") == there


def test_the_printed_address_is_split_into_address_and_token() -> None:
    assert local_token.split("http://127.0.0.1:8712/?token=abc") == ("http://127.0.0.1:8712", "abc")
    assert local_token.split("http://127.0.0.1:8712/") == ("http://127.0.0.1:8712", "")
    assert local_token.split("https://h/base/") == ("https://h/base", "")


def test_no_backup_has_it(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    local_token.made(store)
    (store / "labels").mkdir()
    (store / "runs").mkdir()
    (store / "labels" / "a.json").write_text("{}")
    back_up(store, Folder(copy))
    assert (copy / "labels" / "a.json").is_file()
    assert not [path for path in copy.rglob("*") if "token" in path.name]
