"""What a run says of the code and the machine that made it, also where nothing is installed."""

from importlib import metadata

import pytest

from replay.store import decision_codec, run_header


def test_a_source_tree_and_missing_libraries_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    installed = run_header.code_version.__wrapped__()
    monkeypatch.setattr(run_header.metadata, "version", missing)
    assert run_header.code_version.__wrapped__() == {**installed, "version": "source"}
    assert run_header.environment()["numba"] == "absent"


def test_a_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="NaN"):
        decision_codec._number(float("nan"))
    assert decision_codec._number(float("inf")) is None and decision_codec._number(2) == 2.0
