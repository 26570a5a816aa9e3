"""The table of commands says what the commands say, and help imports none of them."""

import subprocess
import sys
from pathlib import Path

import cli
from commands.frame.options_as_settings import SAID, SHARED, long_name, settings, variable


def test_the_table_has_the_first_line_of_every_help() -> None:
    for name, command in cli.twin.loaded().items():
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert cli.COMMANDS[name][1] == first, name


def test_help_imports_no_command(repository: Path) -> None:
    code = (
        "import sys, cli\n"
        "sys.argv = ['twin', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "light = {'commands', 'commands.frame', 'commands.output', 'commands.run_record'}\n"
        "ours = {m for m in sys.modules if m.startswith('commands.')}\n"
        "heavy = {m for m in ours if not m.startswith('commands.frame.')}\n"
        "print(sorted((heavy - light) | {'pydantic', 'rich', 'difflib', 'tomllib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_said_alone_exists_and_no_two_settings_have_one_variable() -> None:
    commands = cli.twin.loaded()
    options = {long_name(p) for c in commands.values() for p in c.params if isinstance(p, cli.click.Option)}
    assert set(SHARED) <= options and options | {"help", "version"} >= SAID, SAID - options
    names = [variable(name, key) for name, c in commands.items() for key in settings(name, c.params)]
    assert len(set(names)) == len(names) and "TWIN_REPLAY_ENGINE" in names
    assert not {name for name in names if name in {"TWIN_STORE", "TWIN_LOG"}}
