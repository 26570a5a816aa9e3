"""The README and the pages tell the truth: their commands run and print what the README shows."""

import re
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.commands import Call, caller

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
ELSEWHERE = ("own-data.md", "training.md", "cli.md")
"""Pages whose commands need files, which a test of its own has, or minutes: their options are looked up."""


def blocks(page: Path) -> list[list[str]]:
    """Returns the commands of each `console` block of a page."""
    found = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [[line[2:] for line in block.splitlines() if line.startswith("$ ")] for block in found]


BLOCKS = [
    block
    for page in sorted(REPOSITORY.glob("docs/**/*.md"))
    if page.name not in ELSEWHERE
    for block in blocks(page)
]


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(REPOSITORY)
    return caller(capsysbinary, monkeypatch)


BEGINNINGS = Counter(tuple(block[:count]) for block in BLOCKS for count in range(1, len(block) + 1))


@pytest.fixture(scope="module")
def reached() -> dict[tuple[str, ...], Path]:
    """Stores as the commands left them with which several blocks begin: these run once."""
    return {}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_of_commands_runs(
    number: int, tmp_path: Path, call: Call, reached: dict[tuple[str, ...], Path]
) -> None:
    commands, store = BLOCKS[number], tmp_path / "store"
    if any("../shared" in command for command in commands) and not (REPOSITORY / "../shared/traces").is_dir():
        pytest.skip("needs the measurements in ../shared")
    begun = max(
        (count for count in range(len(commands) + 1) if tuple(commands[:count]) in reached), default=0
    )
    if begun:
        shutil.copytree(reached[tuple(commands[:begun])], store)
    for count, command in enumerate(commands[begun:], begun + 1):
        name, *arguments = shlex.split(command, comments=True)
        assert name == "twin", command
        done = call(store, *arguments)
        assert done.code == 0, f"{command}\n{done.err}"
        beginning = tuple(commands[:count])
        if BEGINNINGS[beginning] > 1 and store.exists():
            reached[beginning] = Path(shutil.copytree(store, tmp_path / f"after-{count}"))


def is_shown(line: str, printed: list[str]) -> bool:
    """Return True if a printed line is this one; `...` stands for anything, widths do not count."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.split("..."))
    pattern = pattern.replace(r"\ .*", ".*").replace(r".*\ ", ".*")
    return any(re.fullmatch(pattern, " ".join(text.split())) for text in printed)


def test_the_stories_of_the_readme_print_what_it_shows(tmp_path: Path, call: Call) -> None:
    (tmp_path / "store").mkdir()
    missing = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            words = shlex.split(command.replace("plan.json", str(tmp_path / "plan.json")))
            done = call(tmp_path / "store", *words[1:])
            assert done.code == 0, f"{command}\n{done.err}"
            printed = (done.out.decode() + done.err).splitlines()
            missing += [
                f"{command}: {line}" for line in shown if line != "..." and not is_shown(line, printed)
            ]
    assert missing == []


def test_there_are_commands_to_run() -> None:
    assert README.count("\n$ twin ") >= 9 and sum(map(len, BLOCKS)) >= 20


def test_the_tree_has_every_folder() -> None:
    map_of_the_code = (REPOSITORY / "CONTRIBUTING.md").read_text().split("## Map of the code")[1]
    tree = map_of_the_code.split("```")[1]
    done = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    folders = {line.split("/")[0] + "/" for line in done.stdout.splitlines() if "/" in line}
    assert {folder for folder in folders if not folder.startswith(".")} <= set(tree.split())


def test_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    pages = README + (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make (\w+)|`make (\w+)`", pages, re.MULTILINE)):
        name = target[0] or target[1]
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
