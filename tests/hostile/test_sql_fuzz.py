"""Random statements: rows or a message, in bounded time; the store stays as it is, nothing else is read.

`TWIN_FUZZ=2000` sets the number of statements; the default keeps the suite short.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from ingest.core.errors import UsageError
from replay.sql.formats import FORMATS, render
from replay.sql.query import query
from replay.sql.sandbox import Limits
from tests.support.sql_place import SECRET, Place, made
from tests.support.sql_statements import Statements
from tests.support.tally import tally
from tests.support.watched_folder import WatchedFolder

COUNT = int(os.environ.get("TWIN_FUZZ", "60"))
LIMITS = Limits(timeout_s=2, memory="300MB")
MOST_S = 10.0
"""Time of one statement, also of one that DuckDB does not interrupt, with its rendering."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        yield made(tmp_path_factory.mktemp("fuzz"), patch)


def outcome(place: Place, text: str, number: int) -> tuple[str, str]:
    """What became of a statement, and the text that it returned."""
    try:
        rows = render(query(place.store, text, limits=LIMITS), FORMATS[number % len(FORMATS)])
    except UsageError as error:
        return ("refused" if "twin sql" in str(error) else "message"), str(error)
    return "rows", rows.decode(errors="replace")


def test_random_statements_return_rows_or_a_message_and_change_nothing(place: Place) -> None:
    statements = Statements(7, place.words())
    before = place.content()
    counted: Counter[str] = Counter()
    for number in range(COUNT):
        text = statements.one()
        began = time.monotonic()
        with WatchedFolder(place.secrets) as watched:
            kind, returned = outcome(place, text, number)
            opened = watched.opened()
        where = f"statement {number}: {text}"
        assert time.monotonic() - began < MOST_S, where
        assert not opened, where
        assert SECRET not in returned.replace(text, ""), where
        assert place.content() == before, where
        counted[kind] += 1
        tally(f"sql_{kind}", 1)
    assert min(counted[kind] for kind in ("rows", "refused", "message")) >= COUNT // 20, counted
    print(dict(counted))
