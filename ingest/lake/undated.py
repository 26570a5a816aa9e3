"""Series without dates: the arbitrary day at which they are laid, and how they are known again."""

from datetime import UTC, datetime

from ingest.core.units import to_ns

DEFAULT_START = datetime(2000, 1, 1, tzinfo=UTC)
"""First instant of series without time stamps and stated start: an obviously arbitrary one."""
UNDATED = (
    f"no dates in the files: laid at {DEFAULT_START.date()}, an arbitrary day; say start in dataset.toml"
)
"""Sentence about sets without dates."""
_DAY_NS = to_ns(86_400)


def is_dated(first_ns: int, start: object) -> bool:
    """Returns False for rows that begin on the arbitrary day though no `start` was stated."""
    since_ns = first_ns - to_ns(DEFAULT_START.timestamp())
    return start is not None or not 0 <= since_ns < _DAY_NS
