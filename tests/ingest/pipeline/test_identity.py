"""When the same content under another name is a copy, and when it is another source."""

from pathlib import Path

from tests.support.formats import LINKS, link
from tests.support.kit import lines
from tests.support.kits_gpu import mllog, training
from tests.support.sets import Sets

POWER = training(mllog("power_reading", 4316))


def fill(folder: Path, **files: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.txt").write_bytes(content)
    return folder


def test_two_hosts_may_measure_the_same(tmp_path: Path) -> None:
    fill(tmp_path / "set", node_1=POWER, node_2=POWER)
    sets = Sets(tmp_path, tmp_path / "store", "set")
    assert not any(file.already for file in sets.report.files)
    assert sets.all("SELECT host FROM host_samples ORDER BY 1") == [("node_1",), ("node_2",)]
    second = Sets(tmp_path, tmp_path / "store", "set")
    assert all(file.already for file in second.report.files)
    fill(tmp_path / "set", node_3=POWER)
    grown = Sets(tmp_path, tmp_path / "store", "set")
    assert [file.already for file in grown.report.files] == [True, True, False]
    assert grown.one("SELECT count(*) FROM host_samples") == 3


def test_a_file_that_changed_replaces_its_rows_and_no_others(tmp_path: Path) -> None:
    fill(tmp_path / "set", node_1=POWER, node_2=POWER)
    Sets(tmp_path, tmp_path / "store", "set")
    fill(tmp_path / "set", node_2=training(mllog("power_reading", 5000)))
    sets = Sets(tmp_path, tmp_path / "store", "set")
    rows = sets.all("SELECT host, power_w FROM host_samples ORDER BY host")
    assert rows == [("node_1", 4316.0), ("node_2", 5000.0)]


def test_a_copy_of_what_says_everything_itself_is_a_copy(tmp_path: Path) -> None:
    fill(tmp_path / "set", a=lines(LINKS, link()), b=lines(LINKS, link()))
    sets = Sets(tmp_path, tmp_path / "store", "set")
    assert [file.already for file in sets.report.files] == [False, True]
