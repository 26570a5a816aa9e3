"""The Dockerfile without an engine: what can be read from it. No image is built here."""

import fnmatch
import json
import re
import tomllib
from pathlib import Path

from click.testing import CliRunner

import cli

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/installation.md").read_text()
Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """(keyword, rest) of each instruction, comments left out."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def last_stage() -> list[Instruction]:
    found = instructions()
    return found[max(index for index, (word, _) in enumerate(found) if word == "FROM") :]


def test_the_container_does_not_run_as_root() -> None:
    users = [rest for word, rest in last_stage() if word == "USER"]
    assert users and users[-1].isdigit() and int(users[-1]) >= 1000
    words = [word for word, _ in last_stage()]
    (made,) = [rest for word, rest in last_stage() if word == "RUN" and "useradd" in rest]
    assert f"--uid {users[-1]} " in made and words.index("USER") < words.index("ENTRYPOINT")
    after = [rest for word, rest in last_stage()[words.index("USER") :] if word == "RUN"]
    assert not any("pip" in rest or "apt" in rest for rest in after)  # nothing is installed by the user


def test_what_is_copied_is_there_and_is_all_that_the_wheel_needs() -> None:
    copied = []
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            copied += sources
            assert all((ROOT / source).exists() for source in sources), rest
            assert target in ("./", *sources)
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["only-include"], *wheel["force-include"]} <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*" and {line[1:] for line in ignored if line.startswith("!")} == set(copied)
    assert any(fnmatch.fnmatch("ingest/core/__pycache__", line.replace("**/", "*/")) for line in ignored[1:])


def test_packages_are_pinned_and_torch_is_the_one_for_cpus() -> None:
    lines = [rest for word, rest in instructions() if word == "RUN" and rest.startswith("pip ")]
    torch, twin = lines
    assert all(" --constraint constraints.txt " in line for line in lines)
    assert torch.endswith(" --index-url https://download.pytorch.org/whl/cpu torch") and "--no-deps" in torch
    assert twin.endswith(" .")
    for line in lines:  # the guide has the same lines
        assert f"\n{line}\n" in GUIDE
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert {rest.split()[0] for word, rest in instructions() if word == "FROM"} == {
        f"python:{python.removeprefix('>=')}-slim"
    }


def test_the_health_check_and_the_entry_point_are_commands_that_work(tmp_path: Path) -> None:
    found = dict(last_stage())
    assert json.loads(found["ENTRYPOINT"]) == ["twin"] and json.loads(found["CMD"]) == ["--help"]
    name, *words = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert name == "twin"
    done = CliRunner().invoke(cli.twin, ["--store", str(tmp_path / "none"), *words])
    assert done.exit_code == 0, done.output
