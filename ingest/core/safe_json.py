"""JSON as plain values: every fault of a text is a ValueError."""

import json
from typing import Any

import orjson


def parsed(text: str | bytes) -> Any:
    """Returns the document in a text, or in bytes of UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: it is not JSON, or nested beyond what can be read.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _patiently(text)


def _patiently(text: str | bytes) -> Any:
    """The document as the standard library reads it, which also takes NaN, UTF-16 and halves of letters."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
