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
    writable = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not str(path).endswith("core") and writable(path, mode)
    )
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no/home")
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(compiled.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "fresh"))
    return tmp_path


def test_the_folder_beside_the_code_is_named_after_the_sources(
    monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    compiled.choose_cache_folder()
    made = Path(os.environ.pop("NUMBA_CACHE_DIR"))
    assert made.is_relative_to(repository) and made.name == compiled.source_digest(repository)[:16]


def test_the_digest_follows_what_is_compiled_and_what_it_imports(tmp_path: Path) -> None:
    def put(name: str, text: str) -> str:
        path = tmp_path / "twin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return compiled.source_digest(tmp_path)

    put("units.py", "A = 1")
    put("other.py", "B = 1")
    first = put("kernel.py", "from ingest.core.compiled import njit\nfrom twin.units import A\n")
    assert put("other.py", "B = 2") == first
    second = put("units.py", "A = 2")
    third = put("kernel.py", "from ingest.core.compiled import njit\nfrom twin.units import A  # new\n")
    assert len({first, second, third}) == 3
    assert (
        put("units.py", "A = 1") != first
        and put("third.py", "from ingest.core.compiled import njit") != third
    )


def test_code_of_old_sources_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiled, "_place", lambda: tmp_path)
    for age in range(6):
        (tmp_path / f"old-{age}").mkdir()
        os.utime(tmp_path / f"old-{age}", (1000 - age, 1000 - age))
    compiled.choose_cache_folder()
    os.environ.pop("NUMBA_CACHE_DIR")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old-0", "old-1", "old-2"]


def test_a_choice_of_the_user_stands(monkeypatch: pytest.MonkeyPatch, read_only: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/mine")
    compiled.choose_cache_folder()
    assert os.environ["NUMBA_CACHE_DIR"] == "/mine"


def test_a_private_folder_is_made_and_used_again(read_only: Path) -> None:
    compiled.choose_cache_folder()
    made = Path(os.environ.pop("NUMBA_CACHE_DIR"))
    assert made.parent.parent == read_only and made.parent.stat().st_mode & 0o777 == 0o700
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
    assert Path(os.environ.pop("NUMBA_CACHE_DIR")).parent == read_only / "fresh"


def test_without_any_folder_the_way_out_is_said(read_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: "/proc/no")
    with pytest.raises(StorageError, match=r"no folder for compiled code .* set NUMBA_CACHE_DIR"):
        compiled.choose_cache_folder()


def test_kernels_are_imported_without_a_home(tmp_path: Path, repository: Path) -> None:
    program = "import twin.pipeline.kernel, policy.search.closed_form, replay.log.event_validation"
    environment = {"PYTHONPATH": str(repository), "HOME": "/proc/no", "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_a_function_for_compiled_callers_runs_there_and_says_so_to_python() -> None:
    @compiled.njit_inner()  # type: ignore[untyped-decorator]
    def twice(number: int) -> int:
        return 2 * number

    @compiled.njit  # type: ignore[untyped-decorator]
    def twice_and_one(number: int) -> int:
        return int(twice(number)) + 1

    assert twice_and_one(4) == 9
    with pytest.raises(TypeError, match="twice is compiled for calls from compiled functions alone"):
        twice(4)


def test_a_borrowing_function_calls_one_that_makes_arrays_and_makes_none_itself() -> None:
    @compiled.njit  # type: ignore[untyped-decorator]
    def sum_of_squares(values: NDArray[np.int64]) -> int:
        return int((values * values).sum())

    @compiled.njit_borrowing()  # type: ignore[untyped-decorator]
    def one_more(values: NDArray[np.int64]) -> int:
        values[0] += 1
        return int(sum_of_squares(values))

    @compiled.njit_borrowing()  # type: ignore[untyped-decorator]
    def made(count: int) -> int:
        return int(np.zeros(count, np.int64).sum())

    values = np.array([2, 4])
    assert (one_more(values), values.tolist()) == (25, [3, 4])
    with pytest.raises(TypingError):
        made(3)
