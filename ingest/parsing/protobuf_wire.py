"""Messages of Protocol Buffers as numbered fields, without their schema.

Definition: Protocol Buffers documentation, "Encoding": a field is a varint `number << 3 | type`, then a
varint (type 0), 8 bytes (1), a length and so many bytes (2), or 4 bytes (5).
"""

from collections.abc import Iterator
from typing import BinaryIO

_LONGEST = 10
_MOST = 1 << 28


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields number and value of each field: an unsigned integer of a varint, else its bytes.

    Raises:
        ValueError: it is no message, or cut.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, form = key >> 3, key & 7
        if not number or form in (3, 4, 6, 7):
            raise ValueError("not a message of Protocol Buffers, or cut")
        if form == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(form, 0)
        if form == 2:
            size, at = _varint(message, at)
        if at + size > len(message):
            raise ValueError("not a message of Protocol Buffers, or cut")
        yield number, message[at : at + size]
        at += size


def delimited(stream: BinaryIO) -> Iterator[bytes]:
    """Yields the messages of a stream, each behind its length as a varint.

    Raises:
        ValueError: the stream ends inside a message, or a length is absurd.
    """
    while head := stream.read(1):
        while head[-1] & 0x80 and len(head) <= _LONGEST:
            more = stream.read(1)
            if not more:
                break
            head += more
        size, _ = _varint(head, 0)
        yield exactly(stream, size)


def exactly(stream: BinaryIO, size: int) -> bytes:
    """Returns the next `size` bytes of a stream.

    Raises:
        ValueError: there are fewer, or it is more than a message can have.
    """
    if size > _MOST:
        raise ValueError(f"a record of {size} bytes: not this format, or damaged")
    found = stream.read(size)
    if len(found) < size:
        raise ValueError("the file ends inside a record")
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(message[at : at + _LONGEST]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at + shift + 1
    raise ValueError("not a message of Protocol Buffers, or cut")
