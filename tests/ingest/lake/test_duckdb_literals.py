"""Paths in DuckDB's SQL name one file, whatever signs they hold."""

import string
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from ingest.lake import duckdb_literals, duckdb_views, lake
from ingest.pipeline.ingest import ingest
from tests.support.formats import LINKS, lines, link

ODD = [
    "it's",
    '"q"',
    "st*r",
    "wh?t",
    "a[b]c",
    "[a-z]",
    "[!x]",
    "[",
    "]",
    "**",
    "new\nline",
    "ünï",
    "per%41",
    "~",
]
ODD += ["back\\slash", "{a,b}", "seq=3", "s3:", "file:", "$HOME", "#x?y=1", " ", "-", "\u202e", "--;"]
SIGNS = "'\"*?[]!^{}\\%=:;,~$#&()| \n\tüé\u4e2d" + string.ascii_letters


def rows(path: Path) -> list[str]:
    text = f"SELECT a FROM {duckdb_literals.parquet([path])}"
    with duckdb_views.opened() as connection:
        return [row[0] for row in connection.execute(text).fetchall()]


def fill(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"a": [folder.name]}), folder / "f.parquet")
    return folder / "f.parquet"


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """A folder in which patterns find more than the file meant."""
    for name in ("a", "b", "bar", "whit", "whet", "star", "stir", "abc", "x", "back", "slash", *ODD):
        fill(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", ODD)
def test_a_path_of_odd_signs_names_one_file(crowd: Path, name: str) -> None:
    assert rows(crowd / name / "f.parquet") == [name]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(SIGNS, min_size=1, max_size=12).filter(lambda name: name not in (".", "..")))
def test_a_path_of_any_signs_names_one_file_or_is_refused(crowd: Path, name: str) -> None:
    place = Path(
        tempfile.mkdtemp(dir=crowd)
    )  # DuckDB lists no folder in which a name begins with a backslash
    for neighbour in ("a", "b", "ab", "x"):
        fill(place / neighbour)
    path = fill(place / name)
    if "\\" in name and any(sign in name for sign in "*?["):
        with pytest.raises(UsageError, match="backslash"):
            rows(path)
    else:
        assert rows(path) == [name]


def test_a_name_that_is_not_utf8_is_told() -> None:
    with pytest.raises(UsageError, match=r"udcff.*not UTF-8"):
        duckdb_literals.parquet([Path("/store-\udcff/f.parquet")])


def test_the_views_of_a_store_show_no_rows_of_its_neighbours(tmp_path: Path) -> None:
    """Three stores whose names match the pattern that the name of one of them is."""
    (tmp_path / "l.csv").write_bytes(lines(LINKS, link("1"), link("2")))
    for name in ("store-?", "store-a", "store-*"):
        ingest([tmp_path / "l.csv"], tmp_path / name)
    for name in ("store-?", "store-a", "store-*"):
        with duckdb_views.connect(tmp_path / name) as connection:
            assert connection.execute("SELECT count(*) FROM link_samples").fetchall() == [(2,)]


def test_a_relative_store_and_one_with_a_partition_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "l.csv").write_bytes(lines(LINKS, link("1")))
    ingest([tmp_path / "l.csv"], tmp_path / "src=x" / "~")
    monkeypatch.chdir(tmp_path / "src=x")
    assert lake.parts(Path("~"))
    with duckdb_views.connect(Path("~")) as connection:
        assert connection.execute("SELECT src FROM link_samples").fetchall() == [("a",)]


def test_a_connection_of_ours_fetches_no_extension(tmp_path: Path) -> None:
    with duckdb_views.connect(tmp_path) as connection:
        for name in ("autoinstall_known_extensions", "autoload_known_extensions", "allow_persistent_secrets"):
            assert connection.execute("SELECT current_setting(?)", [name]).fetchall() == [(False,)]
