"""Text of unknown origin for terminals and messages: nothing in it moves the cursor, hides or turns back."""

import re
from reprlib import Repr
from typing import Any

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # no width, or another direction
    "\ud800-\udfff\U000e0000-\U000e007f]"  # halves of letters, letters that cannot be seen
)
"""Characters that a terminal acts on, or that cannot be seen."""
LONGEST = 80
"""Letters of a value that messages show."""
SENTENCE = 300
"""Letters of what a library says that messages show."""


def visible(text: str) -> str:
    """Returns `text` with what cannot be seen written as `\\x1b` or `\\u202e`; line feeds and tabs stay."""
    return HIDDEN.sub(_escape, text)


def in_line(text: str) -> str:
    """Returns `text` as `visible` does, line feeds and tabs escaped too: one line, whatever it holds."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def clipped(text: str, most: int = LONGEST) -> str:
    """Returns a name or a sentence as `in_line` does, cut where it is too long for a message."""
    text = in_line(text[: most + 1])
    return text if len(text) <= most else f"{text[:most]}..."


def shown(value: Any) -> str:
    """Returns the `repr` of a value, on one line and no longer than messages can bear."""
    return in_line(_SHORT.repr(value))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST
_SHORT.maxlevel = 3
