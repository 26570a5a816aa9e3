"""The pointer to the active checkpoint: changed or gone, it is never taken for none."""

import shutil
from pathlib import Path

import pytest

from ingest.core import durable
from ingest.core.errors import DamageError
from replay.store import checkpoint_registry
from tests.support.toys import toy_checkpoint


def test_a_pointer_that_went_away_or_was_changed_is_not_taken_for_none(tmp_path: Path) -> None:
    a = toy_checkpoint(tmp_path / "checkpoints", "mpc")
    checkpoint_registry.promote(tmp_path, a)
    pointer = tmp_path / checkpoint_registry.POINTER
    copy = tmp_path / "checkpoints" / checkpoint_registry.POINTER
    whole = pointer.read_bytes()
    pointer.unlink()
    for act in (checkpoint_registry.active, checkpoint_registry.in_use, checkpoint_registry.rollback):
        with pytest.raises(DamageError, match=f"missing, though a checkpoint was promoted; copy {copy}"):
            act(tmp_path)
    for place in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        pointer.write_bytes(flipped)
        with pytest.raises(DamageError, match=f"{pointer.name}: damaged .* copy {copy} over it"):
            checkpoint_registry.history(tmp_path)
    shutil.copy(copy, pointer)  # the way out that the message names
    copy.unlink()
    assert checkpoint_registry.active(tmp_path) == a
    assert checkpoint_registry.rollback(tmp_path) != a and not pointer.exists()


def test_a_pointer_of_an_older_version_is_read(tmp_path: Path) -> None:
    digest = "ab" * 32
    text = f'{{"checkpoint":"{digest}","history":["{digest}"],"schema":"twin.active/1"}}'
    durable.put(tmp_path / checkpoint_registry.POINTER, text.encode())
    assert checkpoint_registry.active(tmp_path) == digest
