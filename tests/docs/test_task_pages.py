"""docs/tasks: short, each with something that runs; tests/docs/test_readme.py runs the blocks of commands."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "tasks").glob("*.md"))


def test_each_page_is_short_and_has_commands() -> None:
    assert len(PAGES) == 6
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "```console" in text and len(text.splitlines()) <= 70, page.name


def test_the_table_of_providers_is_the_one_that_is_shown(repository: Path) -> None:
    page = (repository / "docs" / "tasks" / "compare-providers.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```csv\n(.*?)```", page, re.DOTALL)
    assert (repository / "docs" / "tasks" / "providers.csv").read_text() == shown


def test_the_policy_runs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (repository / "docs" / "tasks" / "my-policy.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "my-policy.md", "exec"), {"__name__": "page"})
    assert "fastest for the links of now" in capsys.readouterr().out
