"""A data set that leaves the lake: whole, and able to come back."""

from contextlib import suppress
from pathlib import Path

import pytest

from ingest.core import durable
from ingest.core.errors import LockedError, NotFoundError, StorageError
from ingest.lake import lake
from ingest.pipeline.ingest import ingest
from tests.support.formats import LINKS, lines, link
from tests.support.lakes import count, fill, fill_disk, tree


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def two_sets(tmp_path: Path, store: Path) -> list[Path]:
    """Two data sets in the lake, the first in two manifests, one of which replaced another."""
    mine = fill(tmp_path / "mine", {"a.csv": lines(LINKS, link("1")), "b.csv": lines(LINKS, link("2"), "x")})
    other = fill(tmp_path / "other", {"c.csv": lines(LINKS, link("3"))})
    ingest([mine, other], store)
    fill(mine, {"a.csv": lines(LINKS, link("4")), "d.csv": lines(LINKS, link("5"))})
    ingest([mine], store)
    return [mine, other]


def test_a_data_set_is_dropped_and_can_come_back(tmp_path: Path, store: Path) -> None:
    mine, other = two_sets(tmp_path, store)
    before, kept = lake.digest(store), lake.digest(store, "other")
    held = lake.drop(store, "mine")
    assert (held.name, held.rows, held.sources, held.rejected) == ("mine", {"link_samples": 3}, 3, 1)
    assert set(lake.datasets(store)) == {"other"} and count(store) == 1
    assert lake.digest(store) == lake.digest(store, "other") == kept
    assert not [name for name in tree(store) if "mine" in name] and lake.verify(store) == []
    assert len(list((store / "lake" / "manifests").iterdir())) == 1
    assert sum(ingest([mine, other], store).rows.values()) == 3
    assert lake.digest(store) == before


def test_the_last_data_set_can_be_dropped_and_an_unknown_one_is_named(tmp_path: Path, store: Path) -> None:
    with pytest.raises(NotFoundError, match="no data set 'set': it is empty"):
        lake.drop(store, "set")
    assert not store.exists()
    ingest([fill(tmp_path / "set", {"a.csv": lines(LINKS, link())})], store)
    before = tree(store)
    with pytest.raises(NotFoundError, match=r"no data set 'sett' .*did you mean 'set'"):
        lake.drop(store, "sett")
    assert tree(store) == before
    with durable.Lock(store / "lake" / "lock"), pytest.raises(LockedError):
        lake.drop(store, "set")
    lake.drop(store, "set")
    assert lake.live(store) == [] and count(store) == 0


@pytest.mark.parametrize("removals", range(8))
def test_a_drop_that_is_cut_short_has_dropped_all(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    mine, other = two_sets(tmp_path, store)
    before, left = lake.digest(store), iter(range(removals))
    remove = durable.remove

    def dying(path: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr(durable, "remove", dying)
    with suppress(KeyboardInterrupt):
        lake.drop(store, "mine")
    monkeypatch.undo()
    assert set(lake.datasets(store)) == {"other"} and count(store) == 1
    assert sum(ingest([mine, other], store).rows.values()) == 3
    assert lake.digest(store) == before and lake.verify(store) == []
    assert len(list((store / "lake" / "manifests").iterdir())) == len(lake.live(store))


def test_a_drop_that_cannot_be_written_drops_nothing(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_sets(tmp_path, store)
    before = lake.digest(store)
    fill_disk(monkeypatch, 0)
    with pytest.raises(StorageError):
        lake.drop(store, "mine")
    monkeypatch.undo()
    assert lake.digest(store) == before and lake.verify(store) == []
