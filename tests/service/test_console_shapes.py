"""What the console draws of its figures, run in Node: order of samples, scales, identical lines."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.console.assets import STATIC

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Returns what an expression over `shapes.js` gives."""
    (tmp_path / "shapes.mjs").write_bytes((STATIC / "shapes.js").read_bytes())

    def value(expression: str, **given: Any) -> Any:
        code = f'import * as shapes from "./shapes.mjs"; const given = {json.dumps(given)};'
        code += f"process.stdout.write(JSON.stringify({expression}));"
        assert NODE is not None
        command = [NODE, "--input-type=module", "-e", code]
        return json.loads(subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout)

    return value


def samples(*times: float) -> list[dict[str, float]]:
    return [{"at": at, "bandwidth_bps": 1e9 * at} for at in times]


def test_the_measured_line_runs_forward(run: Any) -> None:
    """The stream repeats samples of the history, late ones come late, and a batch has several at once."""
    more = samples(2, 3, 4, 5, 6)
    merged = run("shapes.merged(given.rows, given.more, 5)", rows=samples(1, 2, 3, 5), more=more)
    assert [row["at"] for row in merged] == [2, 3, 4, 5, 6]
    assert [row["at"] for row in run("shapes.merged([], given.more, 9)", more=samples(3, 1, 2, 2))] == [
        1,
        2,
        3,
    ]
    assert run("shapes.merged(given.rows, given.more, 2)", rows=samples(1, 2), more=samples(3)) == samples(
        2, 3
    )


def test_lines_that_lie_on_each_other_are_told_apart(run: Any) -> None:
    columns = [[1, 2, None], [5, 6, 7], [1.001, 2, None], [1, 2, 3], [None] * 3, [None] * 3, [5, 6, 7], []]
    assert run("shapes.covered(given.columns)", columns=columns) == [-1, -1, 0, -1, -1, -1, 1, -1]


def test_all_links_share_one_scale(run: Any) -> None:
    values = [0.3, 1, 1.01, 2, 4.9, 6, 10, 1.2e10, 0, -1, None]
    expected = [0.5, 1, 2, 2, 5, 10, 10, 2e10, 1, 1, 1]
    assert run("given.values.map(shapes.roundedUp)", values=values) == pytest.approx(expected)
    links = [
        {"last": {"bandwidth_bps": 3e9}, "high80_bps": [4e9, 7e9]},
        {"last": None, "high80_bps": [1e6, None]},
    ]
    assert run("shapes.linkScale(given.links, given.samples)", links=links, samples=samples(1)) == 1e10
    assert run("shapes.linkScale(given.links, given.samples)", links=links, samples=samples(15)) == 2e10


def test_the_menu_marks_the_section_that_is_read(run: Any) -> None:
    def reading(tops: list[int], **more: Any) -> Any:
        return run("shapes.readingOf(given.tops, 900, given.more)", tops=tops, more=more)

    assert reading([100, 900, 1800]) == 0
    assert reading([-800, 100, 900]) == 1 and reading([-1900, -900, 10]) == 2
    assert reading([30, 900, 1800]) == 0  # scrolled back up
    assert reading([-900, -100, 300, 600], atEnd=True) == 3  # the last ones are too short for the top
    assert reading([-900, -100, 300, 600], atEnd=True, chosen=2) == 2  # and one of them was gone to
    assert reading([-900, -100, 300, 600], atEnd=True, chosen=0) == 3
