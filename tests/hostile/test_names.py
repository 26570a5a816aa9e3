"""Names that lead out of the store, hide a run, or are too long for a file system."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import cli
from ingest.core import names, plugins
from ingest.core.errors import DamageError, NotFoundError, TwinError, UsageError
from policy.core import registry
from policy.hippo.training import state
from replay.store import checkpoint_registry, run_index
from replay.store.run_header import Header, from_payload
from tests.support.worlds import toy_scenario, toy_setup
from twin.scenario import prepare

OUTSIDE = [
    "../../x",
    "/tmp/x",
    "a/b",
    "..",
    ".",
    "",
    ".hidden",
    "-option",
    "a b",
    "a\nb",
    "a\0b",
    "x" * 65,
    "é",
]
each = pytest.mark.parametrize("name", OUTSIDE, ids=repr)


def written(folder: Path, **changes: Any) -> str:
    document = toy_scenario(3).model_dump(mode="json", exclude_none=True) | changes
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


@each
def test_a_scenario_cannot_bear_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        prepare.load(written(tmp_path, name=name))
    message = str(caught.value)
    assert "own.yaml:" in message and " name: " in message and names.PATTERN in message
    assert len(message.splitlines()) == 1


@each
def test_neither_can_a_job(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jobs\.0\.name: .* a name has"):
        prepare.load(written(tmp_path, jobs=[{"name": name}]))


@each
def test_no_run_is_written_under_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="scenario name"):
        run_index.new_id(tmp_path, name, "static", 0, "0" * 64)
    with pytest.raises(UsageError, match="policy name"):
        run_index.new_id(tmp_path, "toy", name, 0, "0" * 64)


@each
def test_no_policy_is_registered_under_it(name: str) -> None:
    with pytest.raises(UsageError, match="policy name"):
        registry.register(name, lambda: None)  # type: ignore[arg-type, return-value]
    assert name not in registry.POLICIES


@pytest.mark.parametrize("found", [plugins.load, plugins.discover])
def test_no_plugin_bears_it(found: Any, install: Any) -> None:
    install(
        "evil",
        "twin.test",
        {"../x": "evil_thing:value", "fine": "evil_thing:value"},
        evil_thing="value = 1\n",
    )
    taken, problems = found("twin.test", ())
    assert list(taken) == ["fine"]
    assert len(problems) == 1 and names.PATTERN in problems[0]


@pytest.mark.parametrize("run", ["../outside", "..", ".", "", "a/b", "a\0b"])
def test_no_run_is_looked_for_outside_the_store(run: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the name of something inside"):
        run_index.folder(tmp_path, run)


@pytest.mark.parametrize("name", ["my scenario", "../../x", "x" * 200])
def test_a_run_of_an_earlier_version_is_read_whatever_its_name_and_numbers(name: str, tmp_path: Path) -> None:
    world = json.loads(json.dumps(toy_setup(3).header()))
    world["scenario"]["name"] = name
    world["scenario"]["moving"]["restart_s"] = 1e30
    header = Header(world, "static", "kernel", None, False)
    scenario = from_payload(header.payload()).scenario()
    assert scenario.name == name and scenario.moving.restart_s == 1e30
    assert run_index.folder(tmp_path, "my run").parent == tmp_path / "runs"


def test_sites_of_data_keep_their_names(tmp_path: Path) -> None:
    scenario = toy_scenario(3).model_dump(mode="json", exclude_none=True)
    domains = ["New York", "aws:us-east-1", "Zürich (ETH)"]
    scenario["cluster"]["domains"] = [{"name": name, "gpus": 4} for name in domains]
    found = prepare.load(written(tmp_path, cluster=scenario["cluster"]))
    assert found.domains == tuple(domains)
    scenario["cluster"]["domains"][0]["name"] = "New\x1b[2JYork"
    with pytest.raises(UsageError, match="control characters"):
        prepare.load(written(tmp_path, cluster=scenario["cluster"]))


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "x" * 5000 + ".yaml"])
@pytest.mark.parametrize("option", ["scenario", "checkpoint"])
def test_what_no_file_can_be_called_is_not_found(name: str, option: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        if option == "scenario":
            prepare.load(name)
        else:
            checkpoint_registry.resolve(tmp_path, "hippo", name)
    assert len(str(caught.value)) < 1000 and "\0" not in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**63, 10**300, True, "9" * 5000])
def test_seeds_are_those_that_a_log_holds(seed: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"own\.yaml:\d+ seed: "):
        prepare.load(written(tmp_path, seed=seed))
    if isinstance(seed, int) and not isinstance(seed, bool):
        with pytest.raises(UsageError, match="64-bit integers"):
            prepare.assemble(toy_scenario(3), toy_setup(3).wan, window="all", seed=seed)
        done = CliRunner().invoke(cli.twin, ["replay", "--seed", str(seed)])
        assert done.exit_code == 2 and "is not in the range" in done.output


@pytest.mark.parametrize("names_", [["../../x"], [7], ["0" * 65], [None]])
def test_the_pointer_to_checkpoints_holds_digests(names_: list[Any], tmp_path: Path) -> None:
    pointer = {"schema": checkpoint_registry.SCHEMA, "checkpoint": names_[-1], "history": names_}
    (tmp_path / checkpoint_registry.POINTER).write_text(json.dumps(pointer))
    with pytest.raises(DamageError, match="damaged"):
        checkpoint_registry.active(tmp_path)


@pytest.mark.parametrize(
    "content", ['{"state": "../../kept", "config": "", "data": []}', "[", "[" * 10**5, "[]"]
)
def test_the_pointer_to_a_training_names_a_state(content: str, tmp_path: Path) -> None:
    (tmp_path / state.POINTER).write_text(content)
    with pytest.raises(TwinError, match="damaged") as caught:
        state.restore(tmp_path, None, None, None)  # type: ignore[arg-type]
    assert str(tmp_path / state.POINTER) in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["trace", "latest", option, value]
            for option in ("--from", "--to")
            for value in ("nan", "inf", "1e300")
        ),
        *(["replay", "--run", "latest", "--until", value] for value in ("nan", "inf", "0", "1e300")),
        *(["bench", "--seeds", value] for value in ("0", "-1", "1000000000", "9" * 5000)),
        *(["profile", "out", "--micro-batches", value] for value in ("0", "1,x", "9" * 5000, "\u0661")),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_numbers_on_the_command_line_are_finite_and_in_range(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.twin, ["--store", str(tmp_path), *words])
    assert isinstance(done.exception, SystemExit | TwinError), done.exception
    code = done.exception.exit_code if isinstance(done.exception, TwinError) else done.exit_code
    assert code == 2
