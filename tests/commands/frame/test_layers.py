"""Files of settings, variables and words of the command line, one over the other; what is wrong is told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cli
from ingest.core.errors import UsageError

Say = Callable[..., Result]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Calls `twin` in `project/inner`, below a folder with twin.toml, with a user's file of its own."""
    (tmp_path / "project" / "inner").mkdir(parents=True)
    (tmp_path / "user" / "twin").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "inner")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("TWIN_STORE", raising=False)

    def said(*words: str, user: str = "", project: str = "", **variables: str) -> Result:
        (tmp_path / "user" / "twin" / "config.toml").write_text(user)
        (tmp_path / "project" / "twin.toml").write_text(project)
        return CliRunner().invoke(cli.twin, words, obj=cli.Output(), env=variables)

    return said


def setting(done: Result, key: str) -> tuple[Any, str, str | None]:
    """The value of a setting, the kind of its origin and its place."""
    rows = {row["key"]: row for row in json.loads(done.stdout)["settings"]}
    return rows[key]["value"], rows[key]["origin"], rows[key]["place"]


def test_each_layer_wins_over_the_one_below(say: Say, tmp_path: Path) -> None:
    user, project = '[replay]\nwindow = "all"\nengine = "des"\nseed = 1\n', "[replay]\n\nseed = 2\n"
    done = say("config", "--json", user=user, project=project, TWIN_REPLAY_ENGINE="kernel")
    assert setting(done, "replay.deadline") == (False, "default", None)
    assert setting(done, "replay.window") == ("all", "file", f"{tmp_path}/user/twin/config.toml:2")
    assert setting(done, "replay.seed") == (2, "file", f"{tmp_path}/project/twin.toml:3")
    assert setting(done, "replay.engine") == ("kernel", "variable", "TWIN_REPLAY_ENGINE")


def test_words_win_over_variables_and_files(say: Say) -> None:
    project = 'store = "a"\nquiet = true\n'
    done = say("config", "--json", "--store", "c", project=project, TWIN_STORE="b")
    assert setting(done, "store") == ("c", "flag", "--store")
    done = say("--store", "d", "config", "--json", project=project, TWIN_QUIET="0")
    assert setting(done, "store") == ("d", "flag", "--store")
    assert setting(done, "quiet") == (False, "variable", "TWIN_QUIET")
    done = say("config", "--json", project=project, TWIN_STORE="b")
    assert setting(done, "store") == ("b", "variable", "TWIN_STORE")


def test_a_path_starts_at_the_folder_of_its_file(say: Say, tmp_path: Path) -> None:
    project = 'store = "kept"\n[plan]\nscenario = "mine.yaml"\n[train]\nscenario = "tri-7b"\n'
    done = say("config", "--json", project=project)
    assert setting(done, "store")[0] == f"{tmp_path}/project/kept"
    assert setting(done, "plan.scenario")[0] == f"{tmp_path}/project/mine.yaml"
    assert setting(done, "train.scenario")[0] == "tri-7b"


def test_repeatable_options_take_lists(say: Say) -> None:
    done = say("config", "--json", project='bench.policy = ["static", "mpc"]\n')
    assert setting(done, "bench.policy")[0] == ["static", "mpc"]
    assert setting(say("config", "--json", TWIN_BENCH_POLICY="mpc hippo"), "bench.policy")[0] == [
        "mpc",
        "hippo",
    ]


def test_what_is_listed_is_a_file_of_settings_that_sets_the_same(say: Say) -> None:
    first = say("config", project='[replay]\nengine = "des"\n[bench]\npolicy = ["mpc"]\n')
    again = say("config", project=first.stdout)
    assert again.stdout.split("[", 1)[1] == first.stdout.split("[", 1)[1] and 'engine = "des"' in first.stdout
    shown = say("config", "--show-origin", project='[replay]\nengine = "des"\n').stdout
    (line,) = [line for line in shown.splitlines() if line.startswith('engine = "des"')]
    assert line.endswith("/project/twin.toml:2")


WRONG = {
    '[replay]\nengine = "dse"': "2 replay.engine: 'dse' is not one of 'kernel', 'des'; did you mean 'des'?",
    '[replay]\nengnie = "des"': "twin.toml:2 replay.engnie: no such setting; did you mean 'engine'?",
    '[relpay]\nengine = "des"': "twin.toml:1 relpay: no such command; did you mean 'replay'?",
    'stroe = "x"': "twin.toml:1 stroe: no such setting of all commands; did you mean 'store'?",
    'replay = "x"': "twin.toml:1 replay: settings of `twin replay` stand below a line [replay]",
    '[replay]\nstore = "x"': "twin.toml:2 replay.store: is for all commands; write `store = ...`",
    "[rm]\n\nyes = true": "twin.toml:3 rm.yes: is said on the command line alone, as `twin rm --yes`",
    '[report]\nout = "x"': "twin.toml:2 report.out: is said on the command line alone",
    '[replay]\nseed = "x"': "twin.toml:2 replay.seed: 'x' is not a whole number",
    "[replay]\nseed = true": "twin.toml:2 replay.seed: True is not a whole number",
    "[replay]\nseed = -1": "twin.toml:2 replay.seed: -1 is not in the range",
    "quiet = 1": "twin.toml:1 quiet: 1 is not true or false",
    '[bench]\npolicy = "mpc"': "twin.toml:2 bench.policy: 'mpc' is no list; write [\"mpc\"]",
    "[verify]\nx = 1": "twin.toml:2 verify.x: no such setting; this command has none",
    "[replay": "twin.toml: not valid TOML",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_told_by_line_key_and_nearest_key(say: Say, text: str) -> None:
    done = say("status", project=text)
    assert isinstance(done.exception, UsageError), done.output
    assert WRONG[text] in str(done.exception)
    assert say("--help", project=text).exit_code == 0


def test_a_shell_completes_beside_a_wrong_file(say: Say, tmp_path: Path) -> None:
    words = {"_TWIN_COMPLETE": "bash_complete", "COMP_WORDS": "twin stat", "COMP_CWORD": "1"}
    (tmp_path / "project" / "twin.toml").write_text("[replay")
    with CliRunner(env=words).isolation() as streams:
        with pytest.raises(SystemExit):
            cli.twin.main(prog_name="twin")
        assert streams[0].getvalue() == b"plain,status\n"


def test_a_value_that_only_the_command_can_judge_is_told_with_its_origin(say: Say, tmp_path: Path) -> None:
    done = say("replay", project='[replay]\nscenario = "nowhere"\n')
    assert str(done.exception).endswith(f"; set in {tmp_path}/project/twin.toml:2")
    done = say("replay", TWIN_REPLAY_SCENARIO="nowhere")
    assert str(done.exception).endswith("; set by the variable TWIN_REPLAY_SCENARIO")
    done = say("replay", "-s", "nowhere")
    assert "; set" not in str(done.exception)


def test_a_wrong_variable_is_named(say: Say) -> None:
    for words in (["replay"], ["config"]):
        assert "the variable TWIN_REPLAY_SEED" in say(*words, TWIN_REPLAY_SEED="x").output
    assert json.loads(say("config", "--json", "--quiet", TWIN_REPLAY_SED="1").stdout)["idle"] == [
        "TWIN_REPLAY_SED"
    ]


def test_a_configured_policy_asks_no_what_if(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("commands.replaying.replay_logged_run", lambda *words: asked.append(words[2]))
    project = '[replay]\npolicy = "mpc"\n'
    say("replay", "--run", "latest", project=project)
    say("replay", "--run", "latest", "-p", "mpc", project=project)
    assert asked == [None, "mpc"]
