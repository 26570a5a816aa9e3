"""The object of a batch of events: a head, the manifest of the segment, its Parquet file.

    twin.batch/1 WRITER BYTES SHA256\n      32 hexadecimal digits, 10 digits, 64 hexadecimal digits
    the manifest, BYTES long                as in a folder; the chain is over its bytes alone
    the Parquet file

WRITER is drawn at random by each writer: of two that write the same events, each sees which object is its
own. SHA256 is over the head up to it and all that follows. One object holds both files, so a batch is there
or not.
"""

import hashlib
import re
from typing import NamedTuple

from ingest.core.errors import DamageError

NAME = re.compile(r"([0-9]{20})\.batch")
"""Names of batches: the number of the first event."""
_HEAD = re.compile(rb"(twin\.batch/1 ([0-9a-f]{32}) ([0-9]{10}) )([0-9a-f]{64})\n")
HEAD_BYTES = 122


class EventBatch(NamedTuple):
    """The two files of a segment and the writer that stored them."""

    writer: str
    manifest: bytes
    data: bytes


def batch_name(first_seq: int) -> str:
    """Returns the name of the batch whose first event is `first_seq`."""
    return f"{first_seq:020d}.batch"


def encoded(batch: EventBatch) -> bytes:
    """Returns the bytes of the object."""
    start = b"twin.batch/1 %b %010d " % (batch.writer.encode(), len(batch.manifest))
    body = batch.manifest + batch.data
    return b"%b%b\n%b" % (start, hashlib.sha256(start + body).hexdigest().encode(), body)


def decoded(title: str, stored: bytes) -> EventBatch:
    """Returns the batch in an object; the manifest is not looked into.

    Raises:
        DamageError: the object `title` is not one that `encoded` made.
    """
    found = _HEAD.match(stored)
    if found is None:
        raise DamageError(f"{title}: is no batch of events; the object was changed")
    body = stored[found.end() :]
    if hashlib.sha256(found[1] + body).hexdigest().encode() != found[4]:
        raise DamageError(f"{title}: the content was changed (its SHA-256 is not the one in its head)")
    length = int(found[3])
    return EventBatch(found[2].decode(), body[:length], body[length:])
