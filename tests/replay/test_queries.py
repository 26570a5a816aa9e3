"""The worked queries of docs/sql.md run, and its list of views is the one in use."""

import re
from pathlib import Path

import pytest
from histories import write

from replay.sql import describe, query

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
QUERIES = re.findall(
    r"### \d+\. (.*?)\n\n```sql\n(.*?)\n```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL
)
NO_ANSWER = {"When did a better plan exist among those compared, and how much better?"}
"""Questions whose honest answer on the made-up runs is: never."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write(folder / "runs" / "a", policy="mpc")
    write(folder / "runs" / "b", policy="static")
    return folder


def test_there_are_ten() -> None:
    assert len(QUERIES) == 10


@pytest.mark.parametrize(("title", "text"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_worked_query_answers(store: Path, title: str, text: str) -> None:
    assert (query(store, text).num_rows == 0) == (title in NO_ANSWER)


def test_the_list_of_views_is_the_one_in_use() -> None:
    assert f"```text\n{describe()}\n```" in DOCUMENT.read_text(encoding="utf-8")
