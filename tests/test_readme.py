"""The README tells the truth: its commands run, the files it names exist, its tree is complete."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results_page import BEGIN, END

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text()
BLOCKS = [
    [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
]


def run(command: str, store: Path) -> None:
    name, *arguments = shlex.split(command)
    assert name == "twin", command
    done = subprocess.run(
        [sys.executable, "cli.py", "--store", str(store), *arguments],
        cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_of_commands_runs(number: int, tmp_path: Path) -> None:
    commands = BLOCKS[number]
    if any("../shared" in command for command in commands) and not (REPOSITORY / "../shared/traces").is_dir():
        pytest.skip("needs the measurements in ../shared")
    for command in commands:
        run(command, tmp_path / "store")


def test_there_are_commands_to_run() -> None:
    assert sum(map(len, BLOCKS)) >= 12


def test_every_file_it_names_exists() -> None:
    named = re.findall(r"`((?:tests|docs|ingest|policy|replay|traces|configs|benchmarks)/[\w./-]+)`", README)
    named += re.findall(r"\]\(([\w./-]+)\)", README)
    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_its_results_are_those_of_the_page() -> None:
    page = (REPOSITORY / "docs" / "results.md").read_text()
    shown = README.split(BEGIN)[1].split(END)[0].strip()
    tables = shown.split("\n\n")
    assert len(tables) == 2 and all(table.startswith("| ") and table in page for table in tables)


def test_the_tree_has_every_folder() -> None:
    tree = README.split("## The tree")[1].split("```")[1]
    done = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    folders = {line.split("/")[0] + "/" for line in done.stdout.splitlines() if "/" in line}
    assert {folder for folder in folders if not folder.startswith(".")} <= set(tree.split())


def test_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in set(re.findall(r"^make (\w+)|`make (\w+)`", README, re.MULTILINE)):
        name = target[0] or target[1]
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
