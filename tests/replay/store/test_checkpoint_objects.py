"""Checkpoints of a store in a bucket: trained on one machine, used on another, promoted by one of two."""

from pathlib import Path

import obstore
import pytest

from ingest.core.errors import DamageError, LockedError, NotFoundError
from replay.store import checkpoint_registry as registry
from replay.store.checkpoint_objects import POINTER, CheckpointObjects
from tests.support.buckets import InMemory
from tests.support.toys import toy_checkpoint


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    return InMemory(tmp_path, monkeypatch)


def made(store: Path, policy: str = "mpc") -> str:
    """A checkpoint as a training leaves it."""
    return registry.keep(store, toy_checkpoint(store / "checkpoints", policy))


def test_another_machine_uses_what_was_promoted(bucket: InMemory) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    one, two = made(here), made(here, "static")
    registry.promote(here, one)
    assert registry.in_use(there) == registry.resolve(there, "hippo", None) == one
    assert registry.path_of(there, one[:12]).is_relative_to(there)
    assert not (there / "checkpoints" / two).exists(), "read when it is needed"
    registry.promote(there, two)
    assert registry.history(here) == (one, two) and registry.replaced(here) == one
    assert len(registry.stored(there)) == len(registry.stored(here)) == 3
    shipped = registry.that_ships(here)
    assert registry.rollback(here) == one
    assert registry.rollback(there) == registry.verified(shipped) if shipped else one
    assert registry.active(here) is None and registry.history(there) == ()
    with pytest.raises(NotFoundError, match="nothing to go back to"):
        registry.previous(here)
    registry.promote(here, two)
    assert registry.active(there) == two


def test_of_two_promotions_one_is_told(bucket: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    one, two = made(here), made(there, "static")
    read = CheckpointObjects.active

    def slowly(self: CheckpointObjects) -> object:
        found = read(self)
        if self.store == here:
            registry.promote(there, two)
        return found

    monkeypatch.setattr(CheckpointObjects, "active", slowly)
    with pytest.raises(LockedError, match=f"{POINTER}: another process has replaced it"):
        registry.promote(here, one)
    monkeypatch.setattr(CheckpointObjects, "active", read)
    assert registry.history(here) == (two,)
    registry.promote(here, one)
    assert registry.history(there) == (two, one)


def test_a_file_that_a_run_names_goes_into_the_bucket(bucket: InMemory, tmp_path: Path) -> None:
    digest = toy_checkpoint(tmp_path / "elsewhere", "mpc")
    path = tmp_path / "elsewhere" / digest / f"hippo-{digest}.pt"
    assert registry.resolve(bucket.machine(), "hippo", str(path)) == digest
    assert registry.resolve(bucket.machine("there"), "hippo", digest) == digest


def test_changed_objects_are_named(bucket: InMemory) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    digest = made(here)
    registry.promote(here, digest)
    name = f"checkpoints/{digest}/hippo-{digest}.pt"
    obstore.put(bucket.client, name, b"rot")
    held = CheckpointObjects.of(there)
    assert held is not None and [title for title, _ in held.faults()] == [f"{bucket.objects.title}/{name}"]
    with pytest.raises(DamageError, match=f"{name}: its bytes are not"):
        registry.in_use(there)
    obstore.put(bucket.client, POINTER, b"{}")
    with pytest.raises(DamageError, match=f"{POINTER}: damaged .* delete it and promote"):
        registry.active(there)
