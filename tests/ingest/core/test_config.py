from pathlib import Path

import pytest
from pydantic import Field

from ingest.core import resources
from ingest.core.config import Config, load, suggestion
from ingest.core.errors import UsageError


class Inner(Config):
    speed_bps: float
    sizes: tuple[int, ...] = ()


class Outer(Config):
    name: str
    links: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] = Field(default_factory=dict)
    spare: Inner | None = None


def written(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text)
    return path


def test_a_good_file_is_read_with_exponents_as_numbers(tmp_path: Path) -> None:
    got = load(Outer, written(tmp_path, "name: a\nlinks:\n  - {speed_bps: 2.4e12, sizes: [1, 2]}\n"))
    assert got == Outer(name="a", links=(Inner(speed_bps=2.4e12, sizes=(1, 2)),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nam: a\n", "file.yaml:1 nam: unknown key; did you mean 'name'?"),
        ("name: a\nlinks:\n  - speed_bp: 1\n", ":3 links.0.speed_bp: unknown key; did you mean 'speed_bps'?"),
        (
            "name: a\nby_name:\n  x:\n    sped_bps: 1\n",
            ":4 by_name.x.sped_bps: unknown key; did you mean 'speed_bps'?",
        ),
        ("name: a\nspare:\n  size: []\n", ":3 spare.size: unknown key; did you mean 'sizes'?"),
        ("name: a\nlinks:\n  - speed_bps: fast\n", "unable to parse string as a number, not 'fast'"),
        ("name: a\nlinks:\n  - speed_bps: .inf\n", ":3 links.0.speed_bps: Input should be a finite number"),
        ("- 1\n", "expected lines `key: value`, found a list"),
        ("name: [1\n", "not valid YAML"),
        ("", "expected lines `key: value`, found nothing"),
    ],
)
def test_a_fault_names_file_line_key_and_way_out(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(Outer, written(tmp_path, text))
    assert expected in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_every_fault_of_a_file_is_listed(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(Outer, written(tmp_path, "nam: a\nlinks: 3\n"))
    assert len(str(caught.value).splitlines()) == 3  # missing name, unknown nam, links of the wrong type


def test_an_unreadable_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for path, what in (
        (tmp_path / "none.yaml", "cannot be read"),
        (tmp_path / "bytes.yaml", "not a text file"),
    ):
        with pytest.raises(UsageError, match=what):
            load(Outer, path)


def test_suggestion_falls_back_to_the_list() -> None:
    assert suggestion("xyz", ["b", "a"]) == "; known: a, b"


def test_shipped_files_are_found() -> None:
    assert (resources.configs("scenarios") / "tri-7b.yaml").is_file()
    assert (resources.traces() / "README.statistics.json").is_file()
