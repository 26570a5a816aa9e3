"""T25: logs written by older commits of this repository, read by this one.

`python -m benchmarks.replay.upgrade`: for every commit that changed how a log is written, its own code
(out of `git archive`) writes the made-up run of its own tests; this code verifies every byte of it, reads all
events, asks the views, compacts it and verifies again. A commit whose code writes no such run (its tests have
none, or the libraries are too new) is listed as such.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from replay.log.compaction import compact
from replay.log.run_log import RunReader
from replay.sql import query, views

ROOT = Path(__file__).resolve().parents[2]
WRITERS = ("log", "segment", "events", "payloads", "streams", "contents")
PROGRAM = (
    "import sys; sys.path[:0] = ['.', 'tests']; from pathlib import Path; import histories; "
    "print(histories.write(Path(sys.argv[1]))[1])"
)

UNRELEASED = """21df1cd stood for five minutes: manifests had no `check` (digest of their other fields) yet.
No release wrote that form, so it is not read."""


def git(*words: str) -> bytes:
    """What git says about this repository."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def commits() -> list[str]:
    """Commits that changed a writer of the log, the oldest first."""
    files = [f"replay/{name}.py" for name in WRITERS]
    return git("log", "--reverse", "--format=%h %s", "--", *files).decode().splitlines()


def written(commit: str, folder: Path) -> str | None:
    """The chain head of the run that the code of `commit` writes below `folder`; None: it writes none."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as tree:
        tree.extractall(folder / "code", filter="data")
    command = [sys.executable, "-c", PROGRAM, str(folder / "store" / "runs" / "old")]
    done = subprocess.run(command, cwd=folder / "code", capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def read(store: Path, head: str) -> str:
    """What this code makes of the run."""
    reader = RunReader(store / "runs" / "old")
    for _ in range(2):
        findings = reader.verify(head)
        if findings:
            return f"DAMAGED: {findings[0]}"
        seqs = [event.seq for event in reader.events()]
        assert seqs == list(range(len(seqs)))
        rows = sum(query.query(store, f"SELECT * FROM {view.name}").num_rows for view in views.VIEWS)
        compact(reader.run_dir)
    return f"{len(seqs)} events, {rows} rows in the views, the same after compaction"


def table() -> str:
    """One line a commit."""
    lines = ["| T25: log written by | read by this code |", "|---|---|"]
    for line in commits():
        commit, _, subject = line.partition(" ")
        with tempfile.TemporaryDirectory() as name:
            head = written(commit, Path(name))
            said = "writes no made-up run" if head is None else read(Path(name) / "store", head)
        lines.append(f"| {commit} {subject[:60]} | {said} |")
    return "\n".join([*lines, "", UNRELEASED])


def main() -> None:
    """Print the table."""
    print(table())


if __name__ == "__main__":
    main()
