"""What a run says of the code and the machine that made it, also where nothing is installed."""

from importlib import metadata

import pytest

from replay.store import run_header as header, decision_codec as observation


def test_a_source_tree_and_missing_libraries_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    installed = header.code_version.__wrapped__()
    monkeypatch.setattr(header.metadata, "version", missing)
    assert header.code_version.__wrapped__() == {**installed, "version": "source"}
    assert header.environment()["numba"] == "absent"


def test_a_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="NaN"):
        observation._number(float("nan"))
    assert observation._number(float("inf")) is None and observation._number(2) == 2.0
