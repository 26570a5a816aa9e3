"""How long a command takes to start, beside Python alone: `python -m benchmarks.startup`."""

import os
import resource
import subprocess
import sys
from pathlib import Path

TIMES = 20
REPOSITORY = Path(__file__).resolve().parents[1]
CASES = {
    "python -c pass": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "twin --help": ["-m", "cli", "--help"],
    "twin replay --help": ["-m", "cli", "replay", "--help"],
    "twin config": ["-m", "cli", "config"],
}


def started(words: list[str]) -> float:
    """Returns the least CPU seconds of a process over some starts: other work on the machine only adds."""
    found = []
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True, cwd=REPOSITORY,
                       env={**os.environ, "PYTHONPATH": str(REPOSITORY)})  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def main() -> None:
    """Prints a table."""
    print("| command | CPU s |\n|---|---:|")
    for name, words in CASES.items():
        print(f"| `{name}` | {started(words):.3f} |")


if __name__ == "__main__":
    main()
