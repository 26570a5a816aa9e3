"""The lock holds every pin of the constraints with hashes, and nothing else."""

import re
from pathlib import Path


def test_every_pin_is_locked_with_the_hashes_of_its_files(repository: Path) -> None:
    pins = (repository / "constraints.txt").read_text().split()
    entries = (repository / "requirements.lock").read_text().replace(" \\\n", "").splitlines()[1:]
    locked = {
        entry.split()[0]: re.findall(r"--hash=sha256:([0-9a-f]{64})(?:\s|$)", entry) for entry in entries
    }
    assert list(locked) == pins, "run `make lock`"
    assert all(locked.values())
    assert all(len(entry.split()) == 1 + len(locked[entry.split()[0]]) for entry in entries)
