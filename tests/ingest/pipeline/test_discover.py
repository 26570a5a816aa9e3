"""Which folder is a data set, what it is called, and what dataset.toml may say."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.parsing import dataset
from ingest.pipeline.discover import data_sets
from tests.support.formats import LINKS, lines, link


def make(root: Path, *files: str) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines(LINKS, link()))


def found(*paths: Path) -> dict[str, list[str]]:
    return {s.options.name: [s.name_of(file) for file in s.files] for s in data_sets(paths)}


def test_a_folder_with_files_is_one_data_set_with_all_below(tmp_path: Path) -> None:
    make(tmp_path / "mine", "a.csv", "deep/er/b.csv", ".hidden/c.csv", "README.md", "LICENSE", "._a.csv")
    assert found(tmp_path / "mine") == {"mine": ["a.csv", "deep/er/b.csv"]}


def test_a_folder_of_folders_is_one_data_set_unless_described(tmp_path: Path) -> None:
    make(tmp_path / "runs", "host-a/x.csv", "host-b/y.csv")
    assert found(tmp_path / "runs") == {"runs": ["host-a/x.csv", "host-b/y.csv"]}


def test_a_described_folder_is_a_collection(tmp_path: Path) -> None:
    make(tmp_path / "traces", "wan/one/a.csv", "wan/two/sub/b.csv", "gpu/three/c.csv", "gpu/three/d/e.csv")
    (tmp_path / "traces/wan/SOURCES.md").write_text("what lies here")
    (tmp_path / "traces/gpu/SOURCES.md").write_text("what lies here")
    expected = {"one": ["a.csv"], "three": ["c.csv", "d/e.csv"], "two": ["sub/b.csv"]}
    assert found(tmp_path / "traces") == expected
    assert found(tmp_path / "traces/wan", tmp_path / "traces/gpu/three") == expected
    assert found(tmp_path / "traces/wan/two/sub/b.csv") == {"sub": ["b.csv"]}


def test_a_folder_with_dataset_toml_is_a_data_set_of_its_own(tmp_path: Path) -> None:
    make(tmp_path / "all", "top.csv", "inner/a.csv")
    (tmp_path / "all/inner/dataset.toml").write_text('name = "other"')
    assert found(tmp_path / "all") == {"all": ["top.csv"], "other": ["a.csv"]}
    assert found(tmp_path / "all/inner/a.csv") == {"other": ["a.csv"]}


def test_the_same_set_by_two_paths_is_read_once(tmp_path: Path) -> None:
    make(tmp_path / "mine", "a.csv", "b.csv")
    assert found(tmp_path / "mine", tmp_path / "mine/a.csv") == {"mine": ["a.csv", "b.csv"]}


def test_names_are_made_fit_for_a_folder(tmp_path: Path) -> None:
    make(tmp_path / "my links (new)", "a.csv")
    assert list(found(tmp_path / "my links (new)")) == ["my-links-new"]


def test_two_folders_of_one_name_are_a_clash(tmp_path: Path) -> None:
    make(tmp_path / "a/links", "a.csv")
    make(tmp_path / "b/links", "a.csv")
    with pytest.raises(UsageError, match="both are data set 'links'"):
        data_sets([tmp_path / "a/links", tmp_path / "b/links"])


def test_missing_and_empty_paths_are_named(tmp_path: Path) -> None:
    make(tmp_path / "good", "a.csv")
    with pytest.raises(UsageError, match="nowhere: no such file"):
        data_sets([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/README.md").write_text("nothing")
    with pytest.raises(InputError, match="empty: no data files"):
        data_sets([tmp_path / "good", tmp_path / "empty"])


def test_dataset_toml_is_read_in_full(tmp_path: Path) -> None:
    make(tmp_path / "set", "a.csv")
    (tmp_path / "set/dataset.toml").write_text(
        'name = "x"\nreader = "columns"\ntable = "link_samples"\nlicence = "MIT"\ncitation = "me"\n'
        "synthetic = true\nstart = 2024-01-01T02:00:00+02:00\ninterval_s = 5\nstreams = 2\n"
        'assumptions = ["one"]\n[sites]\na = "b"\n[columns]\nts = "when"\n[units]\nbandwidth_bps = "Mb/s"\n'
    )
    options = dataset.options(tmp_path / "set")
    assert (options.name, options.start, options.interval_s) == ("x", datetime(2024, 1, 1, tzinfo=UTC), 5)
    assert (options.sites, options.columns, options.assumptions) == ({"a": "b"}, {"ts": "when"}, ("one",))
    assert options.to_json()["start"] == "2024-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('nmae = "x"', "nmae: unknown key; did you mean 'name'"),
        ('name = "a/b"', "name: 'a/b' cannot be used; a name has"),
        ("name = 3", "name: 3 is not a name"),
        ("streams = true", "streams: True is not a whole number above 0"),
        ("streams = 0", "streams: 0 is not a whole number above 0"),
        ("interval_s = -1", "interval_s: -1 is not a number of seconds, 1e-9"),
        ("interval_s = nan", "interval_s: nan is not a number of seconds, 1e-9"),
        (
            '[columns]\nbandwidth_bps = {from = "mbps", unit = "Mb/s"}',
            r"lines such as bandwidth_bps = \"mbps\"",
        ),
        ('table = "link_sample"', "unknown table 'link_sample'; did you mean 'link_samples'"),
        ('[columns]\nbandwith_bps = "x"', "did you mean 'bandwidth_bps'"),
        ("[sites]\na = 1", r"a table of texts: \[sites\] and lines such as"),
        ('timezone = "Mars/Olympus"', "unknown zone"),
        ('kind = "avaliable"', "kind: unknown kind of link samples 'avaliable'; did you mean 'available'"),
        ('kind = "TCP"', "did you mean 'tcp'"),
        ('table = "link_samples"\n[values]\nkind = "laod"', "values: .* did you mean 'load'"),
        ("assumptions = [1]", "is not a list of sentences"),
        ("interval_s = true", "interval_s: True is not a number of seconds, 1e-9"),
        ("start = 2024-03-01", "is not a time, such as 2024-03-01T00:00:00Z"),
        ('delimiter = ";;"', "delimiter: ';;' is not one character"),
        ('delimiter = "§"', "delimiter: '§' is not one character"),
        ("[values]\nsrc = true", "is not a table of texts and numbers"),
        ('[derive."a/b"]\nmethod = "available"', r"derive.*cannot be used; a name has"),
        ('name = "x"\n[derive.x]\nmethod = "available"', "a set cannot be derived from itself"),
        ("name = ", "not valid TOML"),
    ],
)
def test_dataset_toml_faults_are_named(tmp_path: Path, text: str, message: str) -> None:
    make(tmp_path / "set", "a.csv")
    (tmp_path / "set/dataset.toml").write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        data_sets([tmp_path / "set"])
    assert "dataset.toml" in str(caught.value)


def test_what_is_known_of_public_sets_yields_to_dataset_toml(tmp_path: Path) -> None:
    make(tmp_path / "wanify-aws8", "a.csv")
    assert dataset.options(tmp_path / "wanify-aws8").licence == "MIT"
    (tmp_path / "wanify-aws8/dataset.toml").write_text('licence = "other"')
    options = dataset.options(tmp_path / "wanify-aws8")
    assert (options.licence, options.streams) == ("other", 1)
