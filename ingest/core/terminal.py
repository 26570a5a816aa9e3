"""Text of unknown origin for terminals and messages: nothing in it moves the cursor, hides or turns back."""

import os
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
LONG = 4096
"""Letters in which keys are looked for before a text is cut."""
SENTENCE = 300
"""Letters of what a library says that messages show."""


def without_keys(text: str) -> str:
    """Returns `text` without keys: those in addresses, and the secrets of the environment."""
    if "@" in text:
        text = _IN_S3_ADDRESS.sub("s3://***@", _IN_ADDRESS.sub("//***@", text))
    if "=" in text:
        text = _IN_QUERY.sub(r"\1***", text)
    for name in _SECRETS:
        secret = os.environ.get(name, "")
        if len(secret) >= LEAST_SECRET:
            text = text.replace(secret, "***")
    return text


def visible(text: str) -> str:
    """Returns `text` without keys, and with what cannot be seen written as `\\x1b` or `\\u202e`.

    Line feeds and tabs stay.
    """
    return HIDDEN.sub(_escape, without_keys(text))


def in_line(text: str) -> str:
    """Returns `text` as `visible` does, line feeds and tabs escaped too: one line, whatever it holds."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def clipped(text: str, most: int = LONGEST) -> str:
    """Returns a name or a sentence as `in_line` does, cut where it is too long for a message."""
    text = in_line(without_keys(text[:LONG])[: most + 1])  # keys go before they are cut
    return text if len(text) <= most else f"{text[:most]}..."


def shown(value: Any) -> str:
    """Returns the `repr` of a value, on one line and no longer than messages can bear."""
    return in_line(_SHORT.repr(without_keys(value[:LONG]) if isinstance(value, str) else value))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_IN_ADDRESS = re.compile(r"//[^/\s'\"@]*@")
_IN_S3_ADDRESS = re.compile(r"s3://[^\s'\"]*:[^\s'\"]*@")  # a secret may hold a slash
_IN_QUERY = re.compile(
    r"([?&](?:X-Amz-(?:Credential|Signature|Security-Token)|(?:access_)?token|secret|password)=)[^&\s'\"]+",
    re.IGNORECASE,
)
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
LEAST_SECRET = 8
"""Letters of a secret that is looked for; a shorter one is a word."""
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST
_SHORT.maxlevel = 3
