"""What a shell is told: names, quickly; typing mistakes; examples that parse."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import cli
from commands import completion
from ingest.core.errors import NotFoundError
from policy.core import registry
from replay.store import run_index
from tests.support.heavy_modules import HEAVY
from tests.support.histories import write
from twin.scenario import prepare, queue_file


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path / "runs" / "tri-7b-mpc-s0-12345678", decisions=2)
    (tmp_path / "lake").mkdir()
    index = {"manifests": {"0" * 64: "wanify-aws8", "1" * 64: "synthetic-tri", "2" * 64: "synthetic-tri"}}
    (tmp_path / "lake" / "committed.json").write_text(json.dumps(index))
    return tmp_path


def told(store: Path, *words: str) -> list[str]:
    """What is offered for the last word."""
    asked = ShellComplete(cli.twin, {}, "twin", completion.VARIABLE)
    found = asked.get_completions(["--store", str(store), *words[:-1]], words[-1])
    return [item.value for item in found]


WORDS = {
    ("com",): ["compact", "compare", "completion"],
    ("audit", "tri"): ["tri-7b-mpc-s0-12345678"],
    ("compare", "latest", "la"): ["latest"],
    ("replay", "--resume", "t"): ["tri-7b-mpc-s0-12345678"],
    ("replay", "-p", "sai"): ["sailor", "sailor-native"],
    ("bench", "-s", "qu"): ["quad-70b", "queue", "queue-kth"],
    ("replay", "--dataset", ""): ["synthetic-tri", "wanify-aws8"],
    ("traces", "w"): ["wanify-aws8"],
    ("plan", "--beside", "dt"): ["dtfm", "dtfm-native"],
    ("plan", "--links", "w"): ["wanify-aws8"],
    ("audit", "nothing"): [],
    ("runs", "--wh"): ["--where"],
}


@pytest.mark.parametrize("words", WORDS)
def test_names_are_those_of_store_and_registry(store: Path, words: tuple[str, ...]) -> None:
    assert told(store, *words) == WORDS[words]


def test_all_policies_and_scenarios_are_offered(store: Path) -> None:
    assert told(store, "replay", "-p", "") == list(registry.names())
    assert told(store, "replay", "-s", "") == sorted((*prepare.names(), *queue_file.names()))
    assert told(store, "replay", "-s", "./my") == ["./my"]  # a file, which the shell completes


def test_a_store_that_is_not_there_or_damaged_offers_nothing(tmp_path: Path) -> None:
    assert told(tmp_path / "none", "audit", "") == ["latest"] and told(tmp_path / "none", "traces", "") == []
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "committed.json").write_text("{")
    assert told(tmp_path, "traces", "") == []


def test_a_press_of_the_key_is_answered_without_heavy_packages(store: Path, repository: Path) -> None:
    code = (
        "import os, sys, cli\n"
        "sys.argv = ['twin']\n"
        "try: cli.main()\n"
        f"except SystemExit: print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    for line, begun in (("audit tri", "tri"), ("replay -p mp", "mp"), ("traces syn", "syn")):
        environment = {"_TWIN_COMPLETE": "bash_complete", "COMP_WORDS": f"twin {line}", "COMP_CWORD": "2",
                       "TWIN_STORE": str(store), "PATH": "/usr/bin:/bin"}  # fmt: skip
        if line.startswith("replay"):
            environment["COMP_CWORD"] = "3"
        done = subprocess.run([sys.executable, "-c", code], cwd=repository, env=environment,
                              capture_output=True, text=True, check=True)  # fmt: skip
        assert done.stderr.strip() == "[]", done.stderr
        assert done.stdout.startswith(f"plain,{begun}"), done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    script = CliRunner().invoke(cli.twin, ["completion", shell], obj=cli.Output()).stdout
    assert f"_TWIN_COMPLETE={shell}_complete" in script and "%(" not in script


def test_a_mistyped_command_or_run_is_told_the_nearest(store: Path) -> None:
    with pytest.raises(click.UsageError, match="No such command 'statsu'; did you mean 'status'"):
        cli.twin.main(["statsu"], standalone_mode=False)
    with pytest.raises(click.UsageError, match=r"No such command 'qqq'\.?$"):
        cli.twin.main(["qqq"], standalone_mode=False)
    with pytest.raises(NotFoundError, match=r"did you mean tri-7b-mpc-s0-12345678\?"):
        run_index.find(store, "tri-7b-mcp-s0-12345678")
    with pytest.raises(NotFoundError, match=r"latest: no such run in .* \(there: none yet\)"):
        run_index.find(store / "empty", "latest")


def examples(command: click.Command) -> list[str]:
    """The lines `twin ...` behind `Example`."""
    text = (command.help or "").replace("\b", "")
    return re.findall(r"^\s*(?:Example: )?(twin .*)$", text[text.rindex("Example") :], re.MULTILINE)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_ends_in_examples_that_parse(name: str) -> None:
    command = cli.twin.loaded()[name]
    lines = examples(command)
    assert lines, f"{name} has no example"
    for line in lines:
        words = shlex.split(line.split(" > ")[0] if '"' not in line else line)
        words = words[: words.index(">")] if ">" in words else words
        assert words[:2] == ["twin", name], line
        command.make_context(name, words[2:], obj=cli.Output())


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_no_two_parameters_of_a_command_have_one_name(name: str) -> None:
    """What every command takes, such as `--log`, would overwrite an argument `log`, and be written to."""
    names = [parameter.name for parameter in cli.twin.loaded()[name].params]
    assert len(set(names)) == len(names)
