"""Versions against requirements and pins, with requirements made up here."""

from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from replay.health import packages

NUMPY = metadata.version("numpy")


def test_a_requirement_is_met_or_told_with_both_versions() -> None:
    wanted = [Requirement(line) for line in ("numpy>=1", "numpy<1", "no-such-package>=3")]
    assert packages.faults(wanted) == [f"numpy {NUMPY} is not <1", "no-such-package is not installed"]


def test_an_extra_says_the_line_that_installs_it() -> None:
    missing = packages.of_extra("ray", [Requirement("no-such-package>=3; extra == 'ray'")])
    assert missing.state == "missing" and "no-such-package" in missing.found
    assert missing.way == "python -m pip install -c constraints.txt -e '.[ray]'"
    assert packages.of_extra("x", [Requirement("numpy")]).found == f"numpy {NUMPY}"


def test_outside_a_checkout_the_extra_is_of_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.core.resources.root", lambda: tmp_path)
    assert packages.of_extra("ray", [Requirement("none-such")]).way == "python -m pip install 'twin[ray]'"


def test_pins_are_compared_without_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.13.0+cpu", "numpy": "2.0"}
    monkeypatch.setattr(packages, "installed", versions.get)
    pins = "# a comment\ntorch==2.13.0\nnumpy==2.1\nabsent==1\n"
    assert packages.differing(pins) == ["numpy 2.0, pinned 2.1"]


def test_a_missing_requirement_is_broken_and_an_absent_extra_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "numpy<1",
        "none-such; extra == 'ray'",
        "none-such; extra == 'dev'",
        "numpy; python_version < '3'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    found = {check.name: check for check in packages.checks()}
    assert found["packages"].state == "broken" and found["packages"].way.endswith("'numpy<1'")
    assert found["extra ray"].state == "missing" and "extra dev" not in found


def test_a_source_tree_that_was_never_installed_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "NAME", "never-installed")
    (check,) = packages.checks()
    assert check.state == "note" and check.way.endswith("-e .")
