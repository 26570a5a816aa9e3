"""The definition of a view of `twin sql`, and parts that definitions share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlView:
    """A view: its name, the meaning of a row, (column, meaning) in order, and the SELECT of these columns."""

    name: str
    row: str
    columns: tuple[tuple[str, str], ...]
    select: str


RUN = ("run", "id of the run")
JOB = ("job", "job it belongs to, empty if there is only one")
SEQ = ("seq", "number of the event in its run")
TIME = ("time_s", "simulated seconds since the start of the run")


def typed(kind: str, fields: str) -> str:
    """Returns the SELECT of events of one type, payload as a struct `p`; `fields` is that of `from_json`."""
    parsed = f"from_json(payload, '{{{fields}}}') AS p"
    return f"(SELECT run, seq, sim_ns, job, wall, {parsed} FROM parsed_events WHERE type = '{kind}')"


def sum_bytes(column: str) -> str:
    """Returns the SQL sum over the third entries of `[[i, j, bytes], ...]`."""
    return f"coalesce(list_sum(list_transform({column}, lambda e: e[3])), 0)::BIGINT"
