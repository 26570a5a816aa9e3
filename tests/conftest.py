"""Fixtures shared by all tests."""

import signal
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# What a shell starts in the background ignores Ctrl-C, children included: the tests that interrupt need it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
