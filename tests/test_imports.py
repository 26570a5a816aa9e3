"""Nothing imports the command line, and the command line starts light."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.support.heavy_modules import HEAVY

PACKAGES = ("ingest", "twin", "policy", "replay", "service", "lab", "commands")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_no_package_imports_the_command_line(repository: Path) -> None:
    sources = [path for package in PACKAGES for path in (repository / package).rglob("*.py")]
    assert sources
    assert [str(path) for path in sources if "cli" in imported(path)] == []


def test_help_loads_nothing_heavy(repository: Path) -> None:
    code = f"import sys, cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
