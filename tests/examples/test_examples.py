"""The examples run to their end and print what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

from ingest.pipeline.ingest import ingest
from tests.support.processes import environment

TOLD = {
    "own_data.py": "576 rows from 1 file(s)",
    "own_policy.py": "cautious",
    "own_reader.py": "row 3 line: '2026-03-01T00:05:00Z;paris;berlin;n/a': could not convert",
}


@pytest.mark.parametrize("name", TOLD)
def test_an_example_runs(name: str, repository: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(repository / "examples" / name)],
        cwd=tmp_path, env=environment(repository, tmp_path / "store"), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert TOLD[name] in done.stdout


DEMO = {"serve_demo.py", "play_links.py"}
"""The demonstration of the service, which starts the player of links."""


def test_the_demonstration_of_the_service_runs(repository: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest([repository / "traces" / "synthetic-tri"], store)
    command = [sys.executable, str(repository / "examples" / "serve_demo.py"), "--seconds", "3"]
    done = subprocess.run(
        [*command, "--policy", "static", "--store", str(store)],
        cwd=repository, env=environment(repository, store), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "console     http://127.0.0.1:" in done.stdout and "SYNTHETIC links at 60 times" in done.stdout


def test_every_example_is_run(repository: Path) -> None:
    assert {path.name for path in (repository / "examples").glob("*.py")} == {*TOLD, *DEMO}


def test_the_notebook_runs(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(repository))
    notebook = nbformat.read(repository / "examples" / "tour.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "regret" in printed and "audit: ok" in printed
