"""What people see while something runs, and how values are written."""

import io
from typing import Any

import pytest
import rich.console
import rich.progress

from commands.show.console import Bars, Console, PaceColumn, cell
from ingest.core.progress import SILENT


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (False, "no"), (0.123456, "0.1235"), (12345.6, "12,346"), (12345, "12,345")],
)  # fmt: skip
def test_values_are_written_for_people(value: Any, text: str) -> None:
    assert cell(value) == text


def test_a_terminal_gets_bars_and_a_pipe_gets_none() -> None:
    console = Console()
    with console.progress() as progress:
        assert progress is SILENT
    screen = io.StringIO()
    console._err = rich.console.Console(file=screen, force_terminal=True, width=100)
    with console.progress() as progress:
        progress.advance(3)  # before anything has started: nothing to move
        progress.start(10, "running", "files")
        progress.advance(4, "0.5 h")
    assert (
        "running" in screen.getvalue() and "4/10 files" in screen.getvalue() and "0.5 h" in screen.getvalue()
    )
    with console.working("query"):
        pass
    assert "query" in screen.getvalue()


@pytest.mark.parametrize(
    ("total", "unit", "words"),
    [
        (40, "files", "20/40 files  10 files/s  0:00:02, 0:00:02 left"),
        (4_000_000, "B", "2.0 MB of 4.0 MB  1.0 MB/s  0:00:02, 0:00:02 left"),
        (1000, "", "50 %  25 %/s  0:00:02, 0:00:02 left"),
        (None, "iterations", "20 iterations  10 iterations/s  0:00:02"),
        (None, "", "0:00:02"),
    ],
)  # fmt: skip
def test_a_bar_has_amount_rate_unit_and_time_left(total: int | None, unit: str, words: str) -> None:
    now = [0.0]
    bars = rich.progress.Progress(get_time=lambda: now[0], console=rich.console.Console(file=io.StringIO()))
    shown = Bars(bars)
    shown.start(total, "work", unit)
    for now[0] in (0.0, 1.0, 2.0):
        shown.advance(0 if now[0] == 0 else (total or 40) // 4)
    assert str(PaceColumn().render(bars.tasks[0])) == words


def printed(capsys: pytest.CaptureFixture[str], width: int, *table: Any, **keys: int) -> str:
    console = Console()
    console._out = rich.console.Console(width=width)
    console.table(*table, **keys)
    return capsys.readouterr().out


WIDE = ("links", ("from", "to", "bandwidth", "latency", "loss"), [
    ("oslo", "rome", 1.5e9, 0.031, None), ("oslo", "bonn", 2.5e9, 0.022, 3),
])  # fmt: skip


def test_a_wide_table_becomes_several_with_the_same_keys(capsys: pytest.CaptureFixture[str]) -> None:
    whole = printed(capsys, 80, *WIDE, keys=2)
    assert [line.split() for line in whole.splitlines()] == [
        ["links"], ["from", "to", "bandwidth", "latency", "loss"],
        ["oslo", "rome", "1,500,000,000", "0.031", "-"], ["oslo", "bonn", "2,500,000,000", "0.022", "3"],
    ]  # fmt: skip
    parts = printed(capsys, 30, *WIDE, keys=2)
    assert max(map(len, parts.splitlines())) <= 30
    assert [line.split() for line in parts.splitlines()] == [
        ["links"], ["from", "to", "bandwidth"],
        ["oslo", "rome", "1,500,000,000"], ["oslo", "bonn", "2,500,000,000"], [],
        ["from", "to", "latency", "loss"], ["oslo", "rome", "0.031", "-"], ["oslo", "bonn", "0.022", "3"],
    ]  # fmt: skip


def test_only_long_texts_are_folded_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    why = " ".join(f"word{n}" for n in range(20))
    text = printed(capsys, 60, "", ("file", "why", "rows"), [("a.csv", why, 7)])
    assert max(map(len, text.splitlines())) <= 60
    assert set(why.split()) <= set(text.split()) and "7" in text.split()


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, 80, "runs", ("run", "policy"), []) == "runs\nnone\n"


def test_numbers_stand_right_and_what_has_no_value_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, 80, "", ("n", "problem"), [(None, None), (12345, None)])
    assert [line.rstrip() for line in text.splitlines()] == ["     n  problem", "     -  -", "12,345  -"]
