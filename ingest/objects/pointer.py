"""A small object that names what is in use: a writer replaces the one that it has read, or is told.

A write has the condition `If-Match` with the tag of what was read, or `If-None-Match: *` where there was
nothing. The server may carry out a request whose answer is lost, and the client then asks again and hears
that the object has changed. So an object with the bytes of this request counts as written.
"""

from typing import Any, NamedTuple

from ingest.core.errors import LockedError
from ingest.objects import transfer
from ingest.objects.bucket_prefix import ObjectPrefix
from ingest.objects.client import asked

MAX_BYTES = 1 << 26
"""Bytes of a pointer; a commit of the lake takes a hundred of them."""


class TaggedBytes(NamedTuple):
    """The content of an object as it was read, and its tag, which changes with every write."""

    data: bytes
    tag: str


def read(objects: ObjectPrefix, name: str) -> TaggedBytes | None:
    """Returns an object and its tag, in one request; None: there is none.

    Raises:
        UsageError, StorageError: it cannot be read.
    """
    import obstore

    objects.requests.get += 1
    with asked(f"{objects.title}/{name}", "read"):
        try:
            found = obstore.get(objects.client, name)
        except FileNotFoundError:
            return None
        data = transfer.collected(f"{objects.title}/{name}", found, MAX_BYTES)
        return TaggedBytes(data, str(found.meta["e_tag"]))


def swap(objects: ObjectPrefix, name: str, data: bytes, tag: str | None) -> str:
    """Writes an object in place of the one that has this tag (None: of none), durable on return.

    Returns the new tag.

    Raises:
        LockedError: another writer was faster. UsageError, StorageError: it cannot be written; it may be
        there all the same.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    objects.check_swaps()
    condition: Any = "create" if tag is None else {"e_tag": tag}
    objects.requests.put += 1
    with asked(f"{objects.title}/{name}", "written"):
        try:
            answer = obstore.put(objects.client, name, data, mode=condition, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            answer = None
    if answer is not None:
        return str(answer["e_tag"])
    found = read(objects, name)
    if found is None or found.data != data:
        raise LockedError(
            f"{objects.title}/{name}: another process has replaced it meanwhile, and nothing here was "
            "committed; run the command again"
        )
    return found.tag
