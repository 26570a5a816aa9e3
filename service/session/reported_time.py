"""The time that a client reports with a batch."""

from dataclasses import dataclass

from ingest.core.units import NS_PER_S

AHEAD_NS = 5 * NS_PER_S
"""A client's clock may be ahead by so much; its sample then counts as made on arrival."""


@dataclass(frozen=True, slots=True)
class ReportedTime:
    """The newest time in a batch of a client; `key` is that of the batch."""

    client: str
    key: str
    epoch_ns: int
