import subprocess
import sys
from pathlib import Path

import pytest

from policy.core import registry
from policy.hippo.networks import checkpoint, checkpoint_file
from replay.store import checkpoint_listing, checkpoint_registry

HEAVY = ("torch", "numba", "numpy", "pyarrow", "pydantic", "polars")
LISTS = f"""
import sys
from pathlib import Path
from commands.show import training
from commands.show.console import Console
from replay.store import checkpoint_listing
found = checkpoint_listing.policies(Path(sys.argv[1]))
training.policies(Console(), found)
print("imported:", [name for name in {HEAVY} if name in sys.modules])
"""


def test_the_list_of_policies_imports_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LISTS, tmp_path], capture_output=True, text=True, check=True
    )
    *lines, last = done.stdout.splitlines()
    assert last == "imported: []"
    assert {line.split()[0] for line in lines} >= registry.SHIPPED


def test_a_header_says_without_torch_what_loading_says(tmp_path: Path) -> None:
    ships = checkpoint_registry.that_ships(tmp_path)
    assert ships is not None
    loaded = checkpoint.load(ships)
    (listed,) = checkpoint_listing.checkpoints(tmp_path)
    assert listed.provenance == loaded.provenance
    found = checkpoint_file.header(ships, ships.read_bytes())
    assert found["architecture"] == checkpoint.architecture(loaded.config)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("hippo-00000000.pt", b"changed", "damaged: its digest is"),
        ("hippo-7275b9d1.pt", b"no archive", "not a Hi-PPO checkpoint"),
    ],
)
def test_a_damaged_checkpoint_is_listed_with_the_reason(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    folder = tmp_path / "checkpoints" / "00000000"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)
    first = checkpoint_listing.checkpoints(tmp_path)[0]
    assert problem in first.provenance["problem"] and not first.active
