"""docs/reference/policies.md and docs/reference/terms.md say what is there."""

import re
from pathlib import Path

from click.testing import CliRunner

import cli
from policy.core.registry import POLICIES, SCHEDULES
from twin.settings.window import split


def rows(page: str) -> list[list[str]]:
    """The cells of every row of a page's tables, heads among them."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_policy_is_described_once(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    assert [name for row in rows(page) for name in names(row[0])] == list(POLICIES)
    followers = page.split("## Weights")[1].split("follow")[0]
    assert names(followers) == [name for name, entry in POLICIES.items() if entry.weighted]


def test_schedules_that_a_policy_cannot_plan_are_told(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    told = set(names(page.split("## Which schedules")[1].split("##")[0]))
    refusing = {name for name, entry in POLICIES.items() if set(entry.schedules) != set(SCHEDULES)}
    assert told & set(POLICIES) == refusing


def test_windows_are_those_of_the_code(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "terms.md").read_text(encoding="utf-8")
    ends = {name: split(1_000, name)[1] / 10 for name in ("train", "validate", "test")}
    shares = [ends["train"], ends["validate"] - ends["train"], ends["test"] - ends["validate"]]
    line = page.split("**window**")[1].split("* **")[0]
    assert [float(x) for x in re.findall(r"([\d.]+) %", line)] == shares


def test_whatever_commands_leave_in_a_store_is_listed(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "reference" / "terms.md").read_text(encoding="utf-8")
    listed = {name.split("/")[0] for row in rows(page) for name in names(row[0])}
    for words in (
        ["ingest", str(repository / "traces")],
        ["replay", "--policy", "static", "--scenario", "tri-7b"],
        ["report", "latest"],
        ["calibrate"],
        ["sql", "select count(*) from runs"],
        ["status"],
    ):
        done = CliRunner().invoke(cli.twin, ["--store", str(tmp_path / "store"), *words])
        assert done.exit_code == 0, done.output
    left = {path.name for path in (tmp_path / "store").iterdir() if path.suffix != ".lock"}
    assert len(left) >= 5 and left <= listed, left - listed
