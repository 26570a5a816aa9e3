"""JSON as plain values: every fault of a text is a ValueError."""

import json
from typing import Any


def parsed(text: str | bytes) -> Any:
    """Returns the document in a text, or in bytes of UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: it is not JSON, or nested beyond what can be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
