"""Policies of installed distributions, and those registered in the process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from policy.baselines.static import Static
from policy.core import registry
from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import checkpoint_listing, run_index
from replay.store.run_header import from_payload
from tests.support.toys import toy_run, without_lake

Install = Callable[..., None]
MODULE = '''
from policy.baselines.static import Static


class Mine(Static):
    """Equal cuts, by a plugin.

    More text."""

    name = "mine"
    weighted = True


def factory():
    return Static()


factory.summary = "made by a function"
'''


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Entry points are looked up once a process."""
    registry._plugins.cache_clear()
    yield
    registry._plugins.cache_clear()


@pytest.fixture
def plugins(install: Install) -> None:
    points = {"mine": "my_policies:Mine", "made": "my_policies:factory", "static": "my_policies:Mine"}
    points |= {"broken": "raising_policies:X", "number": "my_policies:__name__", "train": "my_policies:Mine"}
    install(
        "my-policies",
        registry.GROUP,
        points,
        my_policies=MODULE,
        raising_policies="raise OSError('no GPU')\n",
    )


def test_names_import_no_plugin(plugins: None) -> None:
    import sys

    assert registry.names()[-4:] == ("broken", "made", "mine", "number")
    assert registry.known("mine") and not registry.known("theirs")
    assert "my_policies" not in sys.modules and "raising_policies" not in sys.modules


def test_a_plugin_is_listed_with_its_distribution_and_what_fails_with_the_reason(
    plugins: None, tmp_path: Path
) -> None:
    shown = checkpoint_listing.policies(tmp_path)
    entries = {row["name"]: row for row in shown["policies"]}
    assert entries["mine"]["summary"] == "Equal cuts, by a plugin."
    assert entries["made"]["summary"] == "made by a function"
    assert entries["mine"]["distribution"] == "my-policies 1.5"
    assert "distribution" not in entries["static"]
    left_out = [problem.removeprefix("plugin ").split(" is left out: ") for problem in shown["problems"]]
    origin = f"of my-policies 1.5 ({registry.GROUP})"
    assert sorted(map(tuple, left_out)) == [
        (f"'broken' {origin}", "OSError: no GPU"),
        (f"'number' {origin}", "my_policies:__name__ is not callable"),
        (f"'static' {origin}", "the name 'static' is taken"),
        (f"'train' {origin}", "the name 'train' is taken"),
    ]


def test_a_plugin_is_created_and_one_that_fails_says_why(plugins: None) -> None:
    assert registry.create("mine").name == "mine"
    assert registry.entry("mine").weighted and not registry.entry("made").weighted
    with pytest.raises(UsageError, match=r"'broken' of my-policies 1\.5 .* OSError: no GPU"):
        registry.create("broken")
    with pytest.raises(UsageError, match="did you mean 'mine'"):
        registry.create("mime")


def test_a_run_of_a_plugin_is_audited_while_the_plugin_is_installed(
    plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    run_id = toy_run(tmp_path, "mine").run_id
    assert audit(tmp_path, run_id).findings == ()
    monkeypatch.setattr(registry, "_plugins", lambda: ({}, []))
    report = audit(tmp_path, run_id)
    assert report.findings == () and any("'mine'" in note for note in report.notes)


def test_a_policy_object_is_registered_for_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "POLICIES", dict(registry.POLICIES))
    without_lake(monkeypatch)
    registry.register("own", Static)
    registry.register("own", lambda: Static(), summary="my own")
    assert registry.entry("own").summary == "my own"
    run_id = toy_run(tmp_path, "own").run_id
    header = from_payload(RunReader(run_index.folder(tmp_path, run_id)).header())
    assert header.policy == "own"


def test_a_taken_name_is_not_registered(plugins: None) -> None:
    for name in ("static", "mine", "train"):
        with pytest.raises(UsageError, match=f"{name!r} is taken"):
            registry.register(name, Static)
