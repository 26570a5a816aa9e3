"""What is refused is recognised by its error code: words may change."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ingest.core.errors import TwinError


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[TwinError]]:
    """Expect the body to end with the error of this code; the yielded info has its message, for places."""
    with pytest.raises(TwinError) as info:
        yield info
    assert info.value.code == code, f"{info.value.code}: {info.value}"
