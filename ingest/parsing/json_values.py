"""Values out of JSON documents, which may hold anything: checked here so that columns have one type."""

from typing import Any

from ingest.core import safe_json
from ingest.core.terminal import shown
from ingest.parsing.source import Source


def document(source: Source) -> Any:
    """The JSON document in a source.

    Raises:
        ValueError: it is not JSON, or nested beyond reason.
    """
    return safe_json.parsed(source.data())


def number(value: Any) -> float:
    """A float; numbers written as text count, truth values do not.

    Raises:
        ValueError: it is not a number (not finite ones are found later, with the row they stand in).
    """
    if type(value) is float:
        return value
    if type(value) is int and -(2**63) <= value < 2**63:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{shown(value)} is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(value)} is not a number") from None


def amount(value: Any) -> float:
    """A float that is finite and not negative.

    Raises:
        ValueError: it is not.
    """
    made = number(value)
    if not 0 <= made < float("inf"):
        raise ValueError(f"{shown(value)} is {'negative' if made < 0 else 'not finite'}")
    return made


def whole(value: Any, limit: int = 2**63 - 1) -> int:
    """An integer of at most `limit` in size; 3.0 and "3" count.

    Raises:
        ValueError: it is not an integer or out of range.
    """
    if type(value) is not int:
        as_float = number(value)
        if not as_float.is_integer():
            raise ValueError(f"{shown(value)} is not a whole number")
        value = int(as_float)
    if not -limit <= value <= limit:
        raise ValueError(f"{shown(value)} is out of range")
    return int(value)


def text(value: Any) -> str:
    """A text that is not empty and can be stored.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, str) or not value:
        raise ValueError(f"{shown(value)} is not a name")
    if not value.isascii():
        value.encode()  # lone surrogates cannot be stored; UnicodeEncodeError is a ValueError
    return value
