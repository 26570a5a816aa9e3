"""Four errors of a known simulator of queues, each a change of the kernel's text, and that kernel."""

import types
from pathlib import Path

from twin.queue import kernel
from twin.queue.jobs import Int

TEXT = Path(kernel.__file__).read_text(encoding="utf-8")
COMPILED = "from ingest.core.compiled import njit\n"
PLAIN = "def njit(**_):\n    return lambda function: function\n"
MUTANTS = {
    "the reservation goes by the limit, not by the predicted end": (
        "time + jobs.predicted[job], job)\n    now[RUNNING] += 1",
        "time + LIMIT[job], job)\n    now[RUNNING] += 1",
    ),
    "no extra processors": ("now[SPARE] = free - size if", "now[SPARE] = 0 if"),
    "backfilling sorts the queue anew": (
        "    i, free, latest, spare = now[FIRST]",
        "    part = slice(now[FIRST], now[FIRST] + now[WAITING])\n"
        "    queue[part] = sorted(queue[part], key=lambda job: predicted[job])\n"
        "    i, free, latest, spare = now[FIRST]",
    ),
    "each job a second too long": (
        "time + jobs.run[job], job)",
        "time + jobs.run[job] + 1_000_000_000, job)",
    ),
}


def uncompiled(limit: Int, *errors: str) -> types.ModuleType:
    """Returns the kernel as plain Python, with some of `MUTANTS`; `limit` is what a user asked for."""
    text = TEXT
    for before, after in [(COMPILED, PLAIN), *(MUTANTS[error] for error in errors)]:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    module = types.ModuleType("mutant")
    module.__dict__["LIMIT"] = limit
    exec(compile(text, "mutant", "exec"), module.__dict__)
    return module
