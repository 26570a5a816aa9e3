"""What a view of `twin sql` is, and what its definitions have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """A view: its name, what one row is, (column, meaning) in order, and the SELECT that gives these
    columns."""

    name: str
    row: str
    columns: tuple[tuple[str, str], ...]
    select: str


RUN = ("run", "id of the run")
JOB = ("job", "job it belongs to, empty if there is only one")
SEQ = ("seq", "number of the event in its run")
TIME = ("time_s", "simulated seconds since the start of the run")


def typed(kind: str, fields: str) -> str:
    """Events of one type, their payload as a struct `p`; `fields` is the structure for `from_json`."""
    parsed = f"from_json(payload, '{{{fields}}}') AS p"
    return f"(SELECT run, seq, sim_ns, job, wall, {parsed} FROM parsed_events WHERE type = '{kind}')"


def sum_bytes(column: str) -> str:
    """Sum over the third entries of `[[i, j, bytes], ...]`."""
    return f"coalesce(list_sum(list_transform({column}, lambda e: e[3])), 0)::BIGINT"
