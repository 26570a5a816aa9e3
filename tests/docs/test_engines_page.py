"""The files and tests that docs/internals/engines.md names exist."""

import re
from pathlib import Path


def test_files_and_tests_of_the_page_exist(repository: Path) -> None:
    page = (repository / "docs" / "internals" / "engines.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", page)
    assert named
    for path, function in named:
        source = (repository / path).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in source, (path, function)


def test_every_form_names_its_file_and_its_test(repository: Path) -> None:
    page = (repository / "docs" / "internals" / "engines.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    forms = [row for row in rows if row[0] != "| form"]
    assert forms
    for row in forms:
        assert len(row) == 5 and ".py`" in row[1] and "`tests/" in row[4], row[0]
