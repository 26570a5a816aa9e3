"""The worked queries of docs/reference/sql.md run, and its list of views is the one in use."""

import re
from pathlib import Path

import pytest

from replay.sql.query import describe, query
from replay.sql.statement import TABLE_FUNCTIONS
from tests.support.histories import write
from tests.support.sql_page import DOCUMENT, MADE, WALL_CLOCK, made_with, page, replayed, sections

SECTIONS = sections(DOCUMENT.read_text(encoding="utf-8"))
QUERIES = [(found["title"], found["sql"]) for found in SECTIONS]


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
    assert query(store, text).num_rows > 0


def test_the_list_of_views_is_the_one_in_use() -> None:
    assert f"```text\n{describe()}\n```" in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("found", SECTIONS, ids=[found["title"] for found in SECTIONS])
def test_the_answer_beside_a_query_is_one_to_this_query(store: Path, found: re.Match[str]) -> None:
    """Its columns, not its figures: those are of a replayed run and made by `tests/support/sql_page.py`."""
    assert found["answer"], "run tests/support/sql_page.py"
    head, *_, count = found["answer"].splitlines()
    assert head.split() == query(store, found["sql"]).schema.names
    assert count.startswith("(") and count != "(0 rows)"


def test_the_answers_are_those_of_this_code(tmp_path: Path) -> None:
    """The page is made anew and nothing in it changes but what a clock measured."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = MADE.search(text)
    assert found
    if found[1] != made_with():
        pytest.skip(f"the answers were made with {found[1]}; figures may differ in the last digits here")
    replayed(tmp_path)
    for old, new in zip(SECTIONS, sections(page(text, tmp_path)), strict=True):
        if old["title"] not in WALL_CLOCK:
            assert new[0] == old[0], (
                "the page is out of date: PYTHONPATH=.:tests python tests/support/sql_page.py"
            )


def test_the_functions_that_may_stand_in_from_are_listed() -> None:
    text = (
        DOCUMENT.read_text(encoding="utf-8").split("In FROM these functions may stand:")[1].split("\n\n")[0]
    )
    assert tuple(re.findall(r"`(\w+)`", text)) == TABLE_FUNCTIONS


def test_generating_the_page_changes_only_results(store: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    once = page(text, store).replace(made_with(), MADE.findall(text)[0])
    assert len(sections(once)) == 10 and all(found["answer"] for found in sections(once))
    for found, old in zip(reversed(sections(once)), reversed(sections(text)), strict=True):
        once = once[: found.start("answer")] + old["answer"] + once[found.end("answer") :]
    assert once == text
