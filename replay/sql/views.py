"""The views of `twin sql` over the event log; their documentation is generated from these definitions.

Each view is a SELECT over `parsed_events` (one row an event, payload as JSON text) and `runs`. A payload is
parsed once per row, into a struct of the fields that the view shows. No view mixes the events of two runs, so
the rows of a finished run can be cached (`replay.sql.row_cache`).
"""

from replay.sql.bench_views import FRONTS, REGRETS, ROBUSTNESS, STEADINESS, VERDICTS
from replay.sql.event_views import DECISIONS, EVENTS, ITERATIONS, LINKS, PLANS
from replay.sql.power_views import LEDGER, POWER, SITE_POWER
from replay.sql.run_views import BOUNDS, JOBS, NODE_OUTAGES, QUEUE_JOBS, RUNS, TRAINING

__all__ = ["BOUNDS", "EVENTS", "KEPT", "RUNS", "VIEWS", "describe"]

BENCHES = (VERDICTS, REGRETS, ROBUSTNESS, STEADINESS, FRONTS)

VIEWS = (
    EVENTS,
    RUNS,
    DECISIONS,
    PLANS,
    ITERATIONS,
    LINKS,
    POWER,
    SITE_POWER,
    LEDGER,
    JOBS,
    QUEUE_JOBS,
    NODE_OUTAGES,
    TRAINING,
    *BENCHES,
)
"""In the order of creation: `runs` before the views that use it."""

KEPT = (BOUNDS, *(view for view in VIEWS if view not in (EVENTS, RUNS)))
"""Views whose rows follow from the events of a finished run alone."""


def describe() -> str:
    """Returns the documentation of every view, generated from its definition."""
    parts = []
    for view in VIEWS:
        parts.append(f"{view.name}: one row is {view.row}")
        parts += [f"    {name:18} {meaning}" for name, meaning in view.columns]
    return "\n".join(parts)
