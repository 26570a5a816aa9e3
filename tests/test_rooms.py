"""The house keeps its order: size of rooms, what a room says of itself, names, references."""

import ast
import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

PACKAGES = ("commands", "lab", "service", "replay", "policy", "twin", "ingest")
MOST, LEAST = 18, 4
SMALL = {
    "ingest/readers",  # the hall in front of the readers' rooms
    "policy/hippo",  # the hall in front of Hi-PPO's rooms; keeps an address that users type
    "service", "replay", "twin", "policy", "ingest",  # floors
}  # fmt: skip
"""Folders that may hold fewer modules than a room."""
OLD_WORDS = {
    "footage", "footages", "film", "films", "filmed", "course", "courses", "crew", "standing", "lesson",
    "lessons", "scout", "tenant", "tenants", "unfitted", "foresight", "hindsight", "sensing", "surroundings",
    "story", "rehearsal", "teller", "menu", "paced", "outlook", "told", "invented", "gathered", "climbed",
    "strangers",
}  # fmt: skip
"""Private words that the field's terms have replaced, as parts of identifiers."""
STORED = {
    "lessons": "option --lessons and a key of hi_ppo.yaml",
    "unfitted": "key of `twin calibrate --json`",
}
"""Words that users type or that lie on disk keep their place at that border."""


def modules(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.py") if path.name != "__init__.py"]


@pytest.fixture(scope="module")
def rooms(repository: Path) -> list[Path]:
    return sorted(path.parent for name in PACKAGES for path in (repository / name).rglob("__init__.py"))


@pytest.fixture(scope="module")
def trees(repository: Path) -> dict[Path, ast.Module]:
    paths = chain.from_iterable((repository / name).rglob("*.py") for name in PACKAGES)
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_every_folder_of_code_is_a_package(repository: Path) -> None:
    folders = {path.parent for name in PACKAGES for path in (repository / name).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_a_room_holds_four_to_eighteen_modules(repository: Path, rooms: list[Path]) -> None:
    for room in rooms:
        name, count = room.relative_to(repository).as_posix(), len(modules(room))
        assert count <= MOST, f"{name} holds {count} modules: split it"
        assert count >= LEAST or name in SMALL, f"{name} holds {count} modules: join it with another room"


def test_a_room_says_what_comes_in_what_goes_out_and_where_to_start(
    repository: Path, rooms: list[Path]
) -> None:
    for room in rooms:
        text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
        lines = [line for line in text.splitlines() if line.strip()]
        assert len(lines) >= 3, f"{room.relative_to(repository)}/__init__.py: three to six lines are needed"
        named = re.findall(r"`([\w/]+\.py)`", text)
        assert named, f"{room.relative_to(repository)}/__init__.py names no file to start at"
        for file in named:
            assert (room / file).is_file(), f"{room.relative_to(repository)}: {file} is not there"


def test_no_file_repeats_the_name_of_its_folder(repository: Path, rooms: list[Path]) -> None:
    repeated = {
        path.relative_to(repository).as_posix()
        for room in rooms
        for path in modules(room)
        if path.stem.startswith((f"{room.name}_", f"{room.name.removesuffix('s')}_"))
    }
    assert repeated == {"ingest/readers/training/training_trace.py"}  # the format's own name


def test_a_class_name_has_one_meaning(trees: dict[Path, ast.Module]) -> None:
    names = Counter(
        node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert twice == set()


def test_identifiers_use_the_terms_of_the_field(repository: Path, trees: dict[Path, ast.Module]) -> None:
    found = []
    for path, tree in trees.items():
        for name, line in _identifiers(tree):
            words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
            if words & OLD_WORDS - set(STORED):
                found.append(f"{path.relative_to(repository)}:{line}: {name}")
    assert found == []


def _identifiers(tree: ast.Module) -> list[tuple[str, int]]:
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.append((name, node.lineno))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.append((name, node.lineno))
    return names


def test_public_docstrings_say_what_is_returned_or_done(
    repository: Path, trees: dict[Path, ast.Module]
) -> None:
    asking = re.compile(r"(What|Whether|Who|Whom|Whose|How|Where|When|Why)\b")
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = ast.get_docstring(node) or ""
                if asking.match(text):
                    found.append(f"{path.relative_to(repository)}:{node.lineno}: {text.splitlines()[0]}")
    assert found == []


def test_no_text_refers_to_a_document_that_readers_do_not_have(repository: Path) -> None:
    dangling = re.compile(r"\bspec[ /]\d|\bspec \d|\bphase \d,? section|\.\./shared/(spec|design|seeds)")
    paths = [
        path
        for name in (*PACKAGES, "docs", "configs", "examples", "tests", "benchmarks")
        for path in (repository / name).rglob("*")
        if path.suffix in (".py", ".md", ".yaml") and path != Path(__file__)
    ]
    found = [
        f"{path.relative_to(repository)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if dangling.search(line)
    ]
    assert found == []


def test_no_test_imports_another(repository: Path) -> None:
    found = []
    for path in (repository / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                last = [*node.module.split("."), *(alias.name for alias in node.names)]
                if node.module.startswith("tests") and any(part.startswith("test_") for part in last):
                    found.append(f"{path.relative_to(repository)}: {node.module}")
    assert found == []
