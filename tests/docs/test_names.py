"""Files, modules and options that the documents name exist; every page is listed; commands.md is current."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import pytest

import cli
import twin
from tests.support import commands_page

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "traces/README.md")
    for page in REPOSITORY.glob(pattern)
    if page.name != "CHANGELOG.md"  # it tells of what has gone, too
)
FOLDERS = "benchmarks|commands|configs|docs|examples|ingest|policy|replay|tests|traces|twin"
FILE = re.compile(rf"(?<![\w./:-])((?:{FOLDERS})/[\w./-]*[\w/])")
MODULE = re.compile(
    r"(?<![\w./-])((?:benchmarks|commands|ingest|policy|replay|tests|twin)(?:\.(?!(?:md|toml)\b)[A-Za-z_]\w*)+)(?![\w/])"
)
GROUPS = {"twin.policies", "twin.readers"}
"""Groups of entry points: named like modules, and none."""


def defined(source: Path) -> set[str]:
    """Returns the names that a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def exists(name: str) -> bool:
    """Returns whether a dotted name is a package, a module, or something that a module defines."""
    path, parts = REPOSITORY, name.split(".")
    if parts[0] == "twin" and parts[1] in twin.__all__:  # the Python interface
        return True
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if not parts:
        return True
    module = path / f"{parts[0]}.py"
    if module.is_file():
        return len(parts) == 1 or parts[1] in defined(module)
    return (path / "__init__.py").is_file() and parts[0] in defined(path / "__init__.py")


def missing(named: Callable[[str], Iterable[str]]) -> list[str]:
    """Return what `named` takes from the texts of the pages, as `page: name`."""
    return [
        f"{page.relative_to(REPOSITORY)}: {name}"
        for page in PAGES
        for name in sorted(set(named(page.read_text(encoding="utf-8"))))
    ]


def test_files_that_pages_name_exist() -> None:
    assert (
        missing(lambda text: [name for name in FILE.findall(text) if not (REPOSITORY / name).exists()]) == []
    )


def test_modules_that_pages_name_exist() -> None:
    assert missing(lambda text: [n for n in MODULE.findall(text) if n not in GROUPS and not exists(n)]) == []


def test_names_that_pages_place_in_a_file_are_there() -> None:
    def misplaced(text: str) -> list[str]:
        placed = re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", text)
        return [f"{name} in {file}" for name, file in placed if name not in defined(REPOSITORY / file)]

    assert missing(misplaced) == []


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("replay.run.runner", True),
        ("policy.search.plan_search.explore", True),
        ("policy.search.plan_search.nothing", False),
        ("policy.nothing.plan_search", False),
        ("policy.search", True),
    ],
)
def test_names_are_looked_up(name: str, there: bool) -> None:
    assert exists(name) is there


def commands(text: str) -> list[tuple[str, set[str]]]:
    """Return the commands of `twin` in code of a page, each with its long options."""
    # Not what a page shows to go wrong.
    lines = re.findall(r"^(?:\$ )?twin (?!.*# exits 2$)(.*?)(?:  #.*)?$", text, re.MULTILINE) + re.findall(
        r"`twin ([^`]+)`", text
    )
    known = cli.twin.list_commands(click.Context(cli.twin))
    lines = [re.sub(r'"[^"]*"', "", line) for line in lines if line]  # quoted: options of other programs
    words = [(line.split()[0], set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", line))) for line in lines]
    return [(name, options) for name, options in words if name in known]


def test_options_that_pages_name_exist() -> None:
    def unknown(text: str) -> Iterator[str]:
        for name, options in commands(text):
            command = cli.twin.get_command(click.Context(cli.twin), name)
            assert command is not None
            known = {
                word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)
            }
            yield from (f"twin {name} {option}" for option in options - known - {"--help"})

    assert missing(unknown) == []


def test_every_page_is_in_the_index(repository: Path) -> None:
    index = repository / "docs" / "index.md"
    lists = (index, repository / "docs" / "decisions" / "index.md")
    listed = {
        (page.parent / link).resolve()
        for page in lists
        for link in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text(encoding="utf-8"))
    }
    assert [str(page) for page in PAGES if page not in listed | {index}] == []


def test_the_page_of_commands_is_current() -> None:
    page = commands_page.PAGE.read_text(encoding="utf-8")
    assert page == commands_page.made(), "run: python -m tests.support.commands_page"
