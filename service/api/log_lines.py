"""Lines of the network on standard error: one of a kind and minute, whatever clients do."""

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("uvicorn.error")
"""Where lines about connections go, beside those of the HTTP server."""
WINDOW_S = 60.0
KINDS = 200
"""Kinds that are told apart; the one that came longest ago is forgotten first."""


class OncePerMinute(logging.Filter):
    """Passes the first record of a kind in a minute; the next one says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns True for a record that is to be written."""
        kind, now = _kind(record), self._clock()
        last_s, left_out = self._kinds.get(kind, (-WINDOW_S, 0))
        if now - last_s < WINDOW_S:
            self._kinds[kind] = last_s, left_out + 1
            return False
        self._kinds[kind] = now, 0
        self._kinds.move_to_end(kind)
        if len(self._kinds) > KINDS:
            self._kinds.popitem(last=False)
        if left_out:
            record.msg, record.args = f"{record.getMessage().rstrip()} ({left_out:,} more like it before)", ()
        return True


def _kind(record: logging.LogRecord) -> str:
    """Name of what a record says: its text without numbers, which may be addresses and ports."""
    failure = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
    first_line = str(record.msg).partition("\n")[0][:80]
    return f"{record.name} {record.levelno} {re.sub('[0-9]+', '#', first_line)} {failure}"


@contextmanager
def once_a_minute() -> Iterator[None]:
    """Bounds the lines of the HTTP server and of its event loop while the body runs."""
    loggers, bound = (LOGGER, logging.getLogger("asyncio")), OncePerMinute()
    for logger in loggers:
        logger.addFilter(bound)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(bound)
