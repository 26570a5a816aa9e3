from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cli
from commands.output import Output
from ingest.core import extras
from ingest.core.errors import UsageError


@pytest.fixture
def nothing_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)


def test_the_line_is_that_of_a_checkout_or_of_an_installed_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert extras.line_of("ray") == "python -m pip install -c constraints.txt -e '.[ray]'"
    monkeypatch.setattr("ingest.core.resources.root", lambda: tmp_path)
    assert extras.line_of("ray") == "python -m pip install 'twin[ray]'"


def test_what_is_installed_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULE, "standard", "turtle")
    extras.require("standard", "drawing")
    monkeypatch.setitem(extras.MODULE, "standard", "no_such_module")
    with pytest.raises(UsageError, match=r"drawing needs the extra 'standard': python -m pip install"):
        extras.require("standard", "drawing")


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["train", "--tensorboard", "curves"], "tensorboard"),
        (["train", "--ray", "2"], "ray"),
        (["bench", "--ray", "2"], "ray"),
        (["audit", "latest", "--sign", "key.pem"], "sign"),
        (["audit", "latest", "--verify-signature", "key.pem"], "sign"),
    ],
)
def test_a_missing_extra_is_noticed_before_the_work(
    nothing_optional: None, tmp_path: Path, words: list[str], extra: str
) -> None:
    output: Any = Output()
    output.store = tmp_path / "store"  # the work itself would fail here with another error: nothing is there
    done = CliRunner().invoke(cli.twin, words, obj=output)
    assert isinstance(done.exception, UsageError) and f"needs the extra '{extra}'" in str(done.exception)
