"""Files of settings, cases and plans, spoilt at random: accepted or a message, soon and in little memory.

`TWIN_FUZZ=20000` sets the number of files over all kinds; the default keeps the suite short.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.hostile import KINDS, DocumentKind, outcome, spoilt
from tests.support.memory import bounded_memory
from tests.support.tally import tally

FILES = int(os.environ.get("TWIN_FUZZ", "120"))
MOST_MIB = 700
each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All kernels are compiled before anything is timed."""
    folder = tmp_path_factory.mktemp("compiled")
    for kind in KINDS:
        for content in kind.good:
            outcome(kind, content, folder)


@each
def test_the_good_files_are_accepted(kind: DocumentKind, tmp_path: Path) -> None:
    for content in kind.good:
        assert outcome(kind, content, tmp_path).what == "accepted"
        assert outcome(kind, kind.write(kind.parse(content)), tmp_path).what == "accepted"


@each
def test_a_spoilt_file_is_accepted_or_a_message(kind: DocumentKind, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()

    @settings(
        max_examples=-(-FILES // len(KINDS)), deadline=None, derandomize=FILES < 1000, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(seed=st.integers(0, 2**32))
    def trial(seed: int) -> None:
        found = outcome(kind, spoilt(kind, seed), tmp_path)
        counts[found.what] += 1
        assert found.what in ("accepted", "message"), (seed, found)

    with bounded_memory(MOST_MIB):
        trial()
    tally(f"{kind.name}: {dict(counts)}", counts.total())
    assert counts["message"] and counts["accepted"]
