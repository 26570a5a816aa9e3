"""Writes the list of views and the answers of the ten worked queries into docs/reference/sql.md.

`PYTHONPATH=.:tests python tests/support/sql_page.py` ingests the traces that ship with the project, replays
the three policies below on them and asks; the queries themselves are edited in the document. Answers with
wall-clock figures differ from machine to machine, all others do not.
"""

import re
import tempfile
from pathlib import Path

from replay.sql.formats import render
from replay.sql.query import describe, query
from replay.store.run_header import environment

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "sql.md"
MADE = re.compile(r"\(made with: (.*?)\)")
WALL_CLOCK = {"How long did decisions take, by policy and trigger?"}
"""Questions whose answers are of the machine and the moment."""
SECTION = re.compile(
    r"### \d+\. (?P<title>.*?)\n\n```sql\n(?P<sql>.*?)\n```(?:\n\n```text\n(?P<answer>.*?)```)?(?=\n|\Z)",
    re.DOTALL,
)
POLICIES = ("static", "greedy", "mpc")
WIDEST = 108


def sections(text: str) -> list[re.Match[str]]:
    """The worked queries: title, sql and answer (None if there is none yet)."""
    return list(SECTION.finditer(text))


def made_with() -> str:
    """What the figures may depend on beside the code."""
    found = environment()
    return ", ".join(f"{name} {found[name]}" for name in ("processor", "python", "numpy", "numba"))


def page(text: str, store: Path) -> str:
    """The document with its views and answers made anew from the runs in `store`."""
    text = MADE.sub(f"(made with: {made_with()})", text)
    start, end = text.index("```text\n"), text.index("```\n\n## Ten worked queries")
    text = f"{text[:start]}```text\n{describe()}\n{text[end:]}"
    return SECTION.sub(lambda found: _section(found, store), text)


def _section(found: re.Match[str], store: Path) -> str:
    answer = render(query(store, found["sql"]), "table").decode()
    lines = [line if len(line) <= WIDEST else line[: WIDEST - 3] + "..." for line in answer.splitlines()]
    head = found[0].split("\n```sql\n")[0]
    return f"{head}\n```sql\n{found['sql']}\n```\n\n```text\n" + "\n".join(lines) + "\n```"


def replayed(store: Path) -> None:
    """A store with one run of each policy in the world of tri-7b."""
    from ingest.pipeline.ingest import ingest
    from replay.run import runner
    from twin.scenario.prepare import load

    ingest([ROOT / "traces"], store)
    for policy in POLICIES:
        runner.run(store, policy=policy, scenario=load("tri-7b"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        replayed(Path(folder))
        made = page(DOCUMENT.read_text(encoding="utf-8"), Path(folder))
    from ingest.core.durable import replace

    replace(DOCUMENT, made.encode())
