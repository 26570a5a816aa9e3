"""docs/guides/own-data.md tells the truth: its example is ingested as it says, its lists are complete."""

import re
from pathlib import Path

import pytest

from ingest.lake.schema import TABLES
from ingest.lake.validate import ADDED
from ingest.parsing import dataset
from ingest.pipeline.ingest import ingest
from replay.sql.query import query

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "own-data.md").read_text()


def block(kind: str, number: int = 0) -> str:
    return str(re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[number])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mine = tmp_path / "my-links"
    mine.mkdir()
    (mine / "links.csv").write_text(block("csv"))
    (mine / "dataset.toml").write_text(block("toml"))
    return mine


def test_the_example_stores_three_rows_and_rejects_one(tmp_path: Path, folder: Path) -> None:
    report = ingest([folder], tmp_path / "store")
    (file,) = [file for file in report.files if file.reader]
    assert (file.dataset, sum(file.stored.values()), file.rejected) == ("my-links", 3, 1)
    stored = query(tmp_path / "store", "select src, dst, bandwidth_bps from link_samples order by ts")
    assert stored.to_pydict() == {
        "src": ["paris"] * 3,
        "dst": ["berlin", "berlin", "madrid"],
        "bandwidth_bps": [8.125e8, 7.9e8, 6.552e8],
    }
    (reject,) = query(tmp_path / "store", 'select source_row, "column", raw from rejects').to_pylist()
    assert reject == {"source_row": 3, "column": "mbps", "raw": "n/a"}


@pytest.mark.parametrize("address", ["berlin.example.net", "10.0.1.7"])
def test_the_iperf3_example_has_the_ends_that_its_addresses_name(tmp_path: Path, address: str) -> None:
    mine = tmp_path / "office"
    mine.mkdir()
    (mine / "run.json").write_text(block("json"))
    (mine / "dataset.toml").write_text(block("toml", 1).replace("berlin.example.net", address))
    ingest([mine], tmp_path / "store")
    stored = query(
        tmp_path / "store",
        "select dataset, src, dst, bandwidth_bps, rtt_s, streams, kind from link_samples order by source_row",
    )
    same = {"dataset": "office-iperf3", "src": "paris", "dst": "berlin", "streams": 4, "kind": "tcp"}
    assert stored.to_pylist() == [
        same | {"bandwidth_bps": 8.1e8, "rtt_s": pytest.approx(0.0241)},
        same | {"bandwidth_bps": 8.2e8, "rtt_s": pytest.approx(0.0243)},
    ]


def test_the_ping_example_has_both_ends(tmp_path: Path) -> None:
    mine = tmp_path / "pg"
    mine.mkdir()
    (mine / "ping.txt").write_text(
        "PING berlin.example.net (10.0.1.7) 56(84) bytes of data.\n"
        "64 bytes from 10.0.1.7: icmp_seq=1 ttl=58 time=24.1 ms\n"
    )
    (mine / "dataset.toml").write_text(block("toml", 2))
    ingest([mine], tmp_path / "store")
    stored = query(tmp_path / "store", "select dataset, src, dst from link_samples").to_pylist()
    assert stored == [{"dataset": "office-ping", "src": "paris", "dst": "berlin"}]


def test_the_columns_of_links_are_all_there() -> None:
    section = PAGE.split("## The columns of `link_samples`")[1].split("\n## ")[0]
    listed = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    named = {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}
    own = {*ADDED, "source_row"}
    assert named == {field.name for field in TABLES["link_samples"] if field.name not in own}


def test_the_keys_of_dataset_toml_are_those_of_the_reader() -> None:
    assert dataset.__doc__ is not None
    start = dataset.__doc__.index("```toml")
    assert dataset.__doc__[start : dataset.__doc__.rindex("```")] in PAGE
