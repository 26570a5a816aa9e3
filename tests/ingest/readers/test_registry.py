"""Readers that another distribution adds through entry points."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ingest.core.errors import InputError
from ingest.lake import duckdb_views
from ingest.pipeline.ingest import ingest
from ingest.readers import registry

Install = Callable[..., None]

READER = """
from ingest.parsing.reader import RowBatch

class Kelvin:
    name = "kelvin"
    version = 1
    tables = ("gpu_samples",)

    def can_read(self, path, head):
        return head.startswith(b"kelvin")

    def read(self, source, options):
        from datetime import UTC, datetime
        columns = {"source_row": [1], "ts": [datetime(2024, 1, 1, tzinfo=UTC)], "host": ["a"], "gpu": ["0"]}
        yield RowBatch("gpu_samples", columns | {"temp_c": [float(source.data()[7:]) - 273.0]}, 1)

    def assumptions(self, options):
        return ()
"""


@pytest.fixture(autouse=True)
def _fresh_registry() -> Iterator[None]:
    registry._plugins.cache_clear()
    yield
    registry._plugins.cache_clear()


def files(folder: Path) -> Path:
    (folder / "set").mkdir()
    (folder / "set" / "t.kelvin").write_bytes(b"kelvin 300")
    return folder / "set"


def test_a_plugin_reads_its_format(install: Install, tmp_path: Path) -> None:
    install("kelvin-reader", "twin.readers", {"kelvin": "kelvin_reader:Kelvin"}, kelvin_reader=READER)
    report = ingest([files(tmp_path)], tmp_path / "store")
    assert report.files[0].reader == "kelvin" and report.plugin_problems == ()
    rows = duckdb_views.connect(tmp_path / "store").execute("SELECT temp_c FROM gpu_samples").fetchall()
    assert rows == [(27.0,)]
    assert registry.by_name("kelvin").name == "kelvin"


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("kelvin", ("class Kelvin", "raise OSError('no disk')\nclass Kelvin"), "OSError: no disk"),
        (
            "kelvin",
            ('name = "kelvin"', 'name = "celsius"'),
            "the reader is called 'celsius'; its entry point",
        ),
        ("kelvin", ("gpu_samples", "ovens"), "it fills table 'ovens', which the lake does not have"),
        ("kelvin", ("version = 1", 'version = "1"'), "its version '1' is no whole number"),
        ("kelvin", ("def assumptions", "def guesses"), "has no attribute 'assumptions'"),
        ("ping", ("kelvin", "ping"), "the name 'ping' is taken"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_and_ingest_goes_on(
    install: Install, tmp_path: Path, name: str, change: tuple[str, str], reason: str
) -> None:
    from cli import twin

    install(
        "kelvin-reader", "twin.readers", {name: "kelvin_reader:Kelvin"}, kelvin_reader=READER.replace(*change)
    )
    (files(tmp_path) / "l.csv").write_text("ts,src,dst,bandwidth_bps\n2024-01-01T00:00:00Z,a,b,1e9\n")
    command = ["--store", str(tmp_path / "store"), "ingest", str(tmp_path / "set"), "--json"]
    done = CliRunner().invoke(twin, command)
    assert done.exit_code == 0
    (note,) = json.loads(done.stdout)["notes"]
    assert (
        note.startswith(f"plugin '{name}' of kelvin-reader 1.5 (twin.readers) is left out: ")
        and reason in note
    )
    assert " ".join(note.split()) in " ".join(done.stderr.split())
    assert [file["skipped"] is None for file in json.loads(done.stdout)["files"]] == [True, False]


def test_an_ingest_that_reads_nothing_names_the_plugins_left_out(install: Install, tmp_path: Path) -> None:
    install("kelvin-reader", "twin.readers", {"kelvin": "no_such_module:Kelvin"})
    with pytest.raises(
        InputError, match=r"no reader knows this format(.|\n)*plugin 'kelvin' of kelvin-reader"
    ):
        ingest([files(tmp_path)], tmp_path / "store")
