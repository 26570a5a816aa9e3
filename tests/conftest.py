"""Fixtures shared by all tests."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real measurements beside the repository; tests that need it are skipped without it."""
    folder = REPOSITORY.parent / "shared"
    if not (folder / "traces").is_dir():
        pytest.skip("needs the measurements in ../shared")
    return folder
