"""docs/cli.md tells the truth: each command runs and prints what the page shows; exit codes."""

import os
import re
import shlex
from pathlib import Path

import pytest

from ingest.core import errors
from tests.support.commands import Call, caller

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
HABITS = PAGE.split("\n## ")[1:]
BLOCK = re.compile(r"```(console|toml)\n(.*?)```", re.DOTALL)


def pressed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def run(line: str, call: Call, patch: pytest.MonkeyPatch) -> str:
    """Runs a line of the page as it says (variables, exit code, Ctrl-C); returns all that was printed."""
    said, _, remark = line.partition("  # ")
    words = shlex.split(said)
    with patch.context() as here:
        while "=" in words[0]:
            here.setenv(*words.pop(0).split("=", 1))
        if "Ctrl-C" in remark:
            here.setattr("replay.run.runner.play", pressed)
        assert words[0] == "twin"
        done = call(None, *words[1:])
    expected = re.search(r"exits (\d+)", remark)
    assert done.code == (int(expected[1]) if expected else 0), f"{line}\n{done.err}"
    return done.out.decode() + done.err


def shows(printed: str, expected: str) -> bool:
    """Returns True if the output is what the page shows; `...` stands for anything, widths do not matter."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
    pattern = pattern.replace(r"\ .*", ".*").replace(r".*\ ", ".*")
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the page, with the traces that ship, and no settings of the one who tests."""
    (tmp_path / "traces").symlink_to(REPOSITORY / "traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("COLUMNS", "80")
    for name in [name for name in os.environ if name.startswith("TWIN_")]:
        monkeypatch.delenv(name)
    return tmp_path


def test_every_block_prints_what_the_page_shows(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, wrong = caller(capsysbinary, monkeypatch), list[str]()
    for habit in HABITS:
        for kind, text in BLOCK.findall(habit):
            if kind == "toml":
                (folder / "twin.toml").write_text(text)
                continue
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, _, expected = part.partition("\n")
                printed = run(line, call, monkeypatch)
                if not shows(printed, expected):
                    wrong.append(f"{line}\n--- printed\n{printed}\n--- shown\n{expected}")
        if not habit.startswith("12."):  # whose file the next one shows
            (folder / "twin.toml").unlink(missing_ok=True)
    assert not wrong, "\n\n".join(wrong)


def test_the_exit_codes_are_those_of_the_errors() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert told == {0, 130} | {kind.exit_code for kind in kinds if issubclass(kind, errors.TwinError)}
