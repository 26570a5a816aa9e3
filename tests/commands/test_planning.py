"""`twin plan` says before it compiles: a first answer takes half a minute, and a silent one looks hung."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
from replay.planning import candidates

NOTE = "compiling kernels, once for this installation"


@pytest.mark.parametrize("kept", [True, False])
def test_a_first_answer_says_that_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(candidates, "compiled", lambda: kept)
    asked = CliRunner().invoke(cli.twin, ["--store", str(tmp_path), "plan"], obj=cli.Output())
    assert (NOTE in asked.stderr) is not kept
    assert "run `twin ingest" in str(asked.exception)  # an empty store: nothing was compiled for it


def test_kernels_are_compiled_where_all_are_on_the_disk(tmp_path: Path) -> None:
    asked = "from replay.planning.candidates import compiled; print(compiled())"
    fresh = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    python = [sys.executable, "-c", asked]
    assert subprocess.run(python, env=fresh, capture_output=True, text=True, check=True).stdout == "False\n"
