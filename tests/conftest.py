"""Fixtures shared by all tests."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

WITHOUT_KERNELS = (
    *("ingest/", "hostile/", "crash/", "front_door/", "replay/log/", "replay/sql/", "docs/test_names.py"),
    *(f"contract/test_{name}.py" for name in ("readers", "malformed", "random_mappings")),
)
"""Tests that need no compiled code, or little: half of all."""

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in cli.py, before a test imports numpy

# What a shell starts in the background ignores Ctrl-C, children included: the tests that interrupt need it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    from tests.support import suite_times

    suite_times.install(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests without kernels come last: of two processes the second begins there (`--dist worksteal`), while
    the first compiles what the second then reads from numba's cache.
    """
    tests = f"{REPOSITORY / 'tests'}/"
    items.sort(key=lambda item: str(item.path).removeprefix(tests).startswith(WITHOUT_KERNELS))


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Services of tests note their tokens (`service.local_token`) in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


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


@pytest.fixture(scope="session")
def kept_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped traces, a run of `static` and one of `single` in the world of tri-7b; nobody changes it."""
    from tests.support.commands import fill

    store = tmp_path_factory.mktemp("kept") / "store"
    fill(store)
    return store


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a distribution, version 1.5: its name, a group, entry points, and modules by keyword."""
    imported = []

    def installed(name: str, group: str, points: dict[str, str], **modules: str) -> None:
        folder = tmp_path / "site" / name
        meta = folder / f"{name.replace('-', '_')}-1.5.dist-info"
        meta.mkdir(parents=True)
        (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        lines = [f"{point} = {target}" for point, target in points.items()]
        (meta / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
            imported.append(module)
        monkeypatch.syspath_prepend(folder)
        importlib.invalidate_caches()

    yield installed
    for module in imported:
        sys.modules.pop(module, None)
