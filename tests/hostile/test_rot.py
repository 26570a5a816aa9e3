"""Every kind of stored file, harmed in six ways: the damage is named or harmless, and no answer is wrong.

`TWIN_FUZZ=100` tries that many flips and cuts of each kind, and every other way; more does not try more. The
default tries a flip and one other way of each kind.
"""

import os

import pytest

from replay.sql import row_cache
from tests.support.rot import HARMS, KINDS, Rot
from tests.support.tally import tally

pytest.importorskip("cryptography", reason="extra `sign`")
TRIES = min(100, int(os.environ.get("TWIN_FUZZ", "0")))
WAYS = list(HARMS)


@pytest.fixture(scope="module")
def rot(tmp_path_factory: pytest.TempPathFactory) -> Rot:
    return Rot.made(tmp_path_factory.mktemp("rot"))


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows of small runs be cached."""
    monkeypatch.setattr(row_cache, "LEAST_EVENTS", 100)


@pytest.mark.parametrize("kind", KINDS)
def test_no_harm_to_a_stored_file_changes_an_answer(rot: Rot, kind: str) -> None:
    assert rot.files(kind)
    other = WAYS[1 + list(KINDS).index(kind) % (len(WAYS) - 1)]
    for harm in WAYS if TRIES else (WAYS[0], other):
        for number in range(rot.tries(len(rot.files(kind)), harm, TRIES or 1)):
            outcome, said = rot.trial(kind, harm, number)
            tally("rot", 1)
            assert outcome in ("found", "harmless"), (kind, harm, number, said)
