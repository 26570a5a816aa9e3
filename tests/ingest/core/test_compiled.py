"""Compiled code is kept where it can be written and nobody else can have written it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError
from numpy.typing import NDArray

from ingest.core import compiled
from ingest.core.errors import StorageError


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither the code nor a home can be written; the temporary folder can."""
    monkeypatch.setattr(compiled, "__file__", "/proc/no/code/compiled.py")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no/home")
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(compiled.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "fresh"))
    return tmp_path


def test_the_cache_lies_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled.choose_cache_folder()
    assert os.environ.pop("NUMBA_CACHE_DIR") == str(tmp_path / "cache" / "twin-compiled")


def test_the_digest_covers_what_a_module_imports_directly_or_not(tmp_path: Path) -> None:
    def digest_after(name: str, text: str) -> str:
        path = tmp_path / "twin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        compiled._imported.cache_clear()
        compiled._read.cache_clear()
        return compiled.source_digest(tmp_path / "twin" / "kernel.py", tmp_path)

    kernel = "from ingest.core.compiled import njit\nfrom twin.units import (\n    A,\n)\n"
    (tmp_path / "twin").mkdir()
    (tmp_path / "twin" / "kernel.py").write_text(kernel)
    first = digest_after("units.py", "from twin import base\nA = 1")
    assert digest_after("other.py", "B = 1") == first  # nothing imports it
    digests = {
        first,
        digest_after("base.py", "C = 1"),  # `from package import module`, of an imported module
        digest_after("base.py", "C = 2"),
        digest_after("units.py", "from twin import base\nA = 2"),
        digest_after("kernel.py", kernel + "# new\n"),
    }
    assert len(digests) == 5


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from twin.doubling import double
double(21)
print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""


def run_in_checkout(checkout: Path, repository: Path, cache: Path, kernel: str) -> list[int]:
    """Call a compiled function of a new checkout; return its cache hits and misses."""
    for package in ("ingest", "twin"):
        (checkout / package).mkdir(parents=True, exist_ok=True)
        (checkout / package / "__init__.py").write_text("")
    (checkout / "ingest" / "core").mkdir(exist_ok=True)
    for name in ("__init__.py", "compiled.py", "errors.py"):
        (checkout / "ingest" / "core" / name).write_bytes((repository / "ingest/core" / name).read_bytes())
    (checkout / "twin" / "doubling.py").write_text(kernel)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": ""}
    command = [sys.executable, "-c", PROGRAM, str(checkout)]
    ended = subprocess.run(command, env=environment, cwd="/", check=True, capture_output=True, text=True)
    return [int(word) for word in ended.stdout.split()]


def test_checkouts_with_equal_sources_share_compiled_code(tmp_path: Path, repository: Path) -> None:
    kernel = "from ingest.core.compiled import njit\n@njit(cache=True)\ndef double(n):\n    return 2 * n\n"
    cache = tmp_path / "cache"
    assert run_in_checkout(tmp_path / "first", repository, cache, kernel) == [0, 1]
    assert run_in_checkout(tmp_path / "second", repository, cache, kernel) == [1, 0]
    assert run_in_checkout(tmp_path / "third", repository, cache, kernel + "# changed\n") == [0, 1]


def test_old_versions_of_a_module_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.numba.config, "CACHE_DIR", str(tmp_path))
    versions = tmp_path / compiled.numba.__version__
    for age in range(12):
        (versions / f"twin.pipeline.kernel-{age}").mkdir(parents=True)
        os.utime(versions / f"twin.pipeline.kernel-{age}", (1000 - age, 1000 - age))
    module = compiled.SOURCES / "twin" / "pipeline" / "kernel.py"
    locator = compiled.ContentLocator.from_function(run_in_checkout, str(module))
    assert locator is not None and Path(locator.get_cache_path()).is_dir()
    left = {path.name for path in versions.iterdir()}
    assert left == {Path(locator.get_cache_path()).name} | {f"twin.pipeline.kernel-{age}" for age in range(7)}


def test_a_choice_of_the_user_stands(monkeypatch: pytest.MonkeyPatch, read_only: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/mine")
    compiled.choose_cache_folder()
    assert os.environ["NUMBA_CACHE_DIR"] == "/mine"


def test_a_private_folder_is_made_and_used_again(read_only: Path) -> None:
    compiled.choose_cache_folder()
    made = Path(os.environ.pop("NUMBA_CACHE_DIR"))
    assert made.parent == read_only and made.stat().st_mode & 0o777 == 0o700
    compiled.choose_cache_folder()
    assert Path(os.environ.pop("NUMBA_CACHE_DIR")) == made


@pytest.mark.parametrize("planted", ["open", "link"])
def test_a_folder_that_others_may_have_written_is_not_used(read_only: Path, planted: str) -> None:
    own = read_only / f"twin-compiled-{os.getuid()}"
    if planted == "link":
        (read_only / "theirs").mkdir(mode=0o700)
        own.symlink_to(read_only / "theirs")
    else:
        own.mkdir()
        own.chmod(0o777)
    compiled.choose_cache_folder()
    assert Path(os.environ.pop("NUMBA_CACHE_DIR")) == read_only / "fresh"


def test_without_any_folder_the_error_names_the_variable(
    read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(prefix: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: "/proc/no")
    monkeypatch.setattr(compiled.tempfile, "mkdtemp", refuse)
    with pytest.raises(StorageError, match=r"no folder for compiled code .* set NUMBA_CACHE_DIR"):
        compiled.choose_cache_folder()


def test_kernels_are_imported_without_a_home(tmp_path: Path, repository: Path) -> None:
    program = "import twin.pipeline.kernel, policy.search.closed_form, replay.log.event_validation"
    environment = {"PYTHONPATH": str(repository), "HOME": "/proc/no", "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_a_function_for_compiled_callers_runs_there_and_says_so_to_python() -> None:
    @compiled.njit(inner=True)
    def twice(number: int) -> int:
        return 2 * number

    @compiled.njit
    def twice_and_one(number: int) -> int:
        return int(twice(number)) + 1

    assert twice_and_one(4) == 9
    with pytest.raises(TypeError, match="twice is compiled for calls from compiled functions alone"):
        twice(4)


def test_a_borrowing_function_calls_one_that_makes_arrays_and_makes_none_itself() -> None:
    @compiled.njit
    def sum_of_squares(values: NDArray[np.int64]) -> int:
        return int((values * values).sum())

    @compiled.njit(borrowing=True)
    def one_more(values: NDArray[np.int64]) -> int:
        values[0] += 1
        return int(sum_of_squares(values))

    @compiled.njit(borrowing=True)
    def made(count: int) -> int:
        return int(np.zeros(count, np.int64).sum())

    values = np.array([2, 4])
    assert (one_more(values), values.tolist()) == (25, [3, 4])
    with pytest.raises(TypingError):
        made(3)
