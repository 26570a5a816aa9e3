"""Sizes and encodings of the pages of a Parquet column chunk, from the headers before each page.

The footer states both, too, but a decoder allocates what the header of a page says. Source: Apache Parquet,
`parquet.thrift` (PageHeader), in the compact protocol of Thrift.
"""

from dataclasses import dataclass
from typing import Any, BinaryIO

PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED = 0, 2, 3, 4
DELTA_BYTE_ARRAY, RLE_DICTIONARY = 7, 8
"""Encodings by their numbers in `parquet.thrift`."""
_WINDOWS = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
"""Bytes to read for a header: minima and maxima in it may be long."""
_MAX_DEPTH = 16
_SIZE, _COMPRESSED, _DATA_V1, _DATA_V2 = 2, 3, 5, 8
_VALUES = 1
_ENCODING = {_DATA_V1: 2, _DATA_V2: 4}
"""Field of the encoding in each kind of header of a data page."""
Fields = dict[int, Any]


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """Bytes of all pages of a chunk before decoding, and the encodings of its data pages."""

    size_bytes: int
    encodings: frozenset[int]


def pages(stream: BinaryIO, start: int, length: int, values: int) -> ChunkPages:
    """Returns what the headers of the pages in `length` bytes from `start` on say, up to those that hold
    `values`: decoders read no further, and some writers state other lengths.

    Raises:
        ValueError: these are no pages.
    """
    at, end, size, seen = start, start + length, 0, 0
    encodings: set[int] = set()
    while at < end and seen < values:
        header, taken = _header(stream, at)
        uncompressed, compressed = header.get(_SIZE), header.get(_COMPRESSED)
        if not (isinstance(uncompressed, int) and isinstance(compressed, int)):
            raise ValueError("a page without a size")
        if min(uncompressed, compressed) < 0:
            raise ValueError("a page of a negative size")
        size += uncompressed
        for kind, field in _ENCODING.items():
            data = header.get(kind)
            if isinstance(data, dict):
                count = data.get(_VALUES)
                seen += count if isinstance(count, int) else 0
                encodings.add(data.get(field, PLAIN))
        at += taken + compressed
    return ChunkPages(size, frozenset(encodings))


def _header(stream: BinaryIO, at: int) -> tuple[Fields, int]:
    """The fields of the header at `at`, and its length."""
    for window in _WINDOWS:
        stream.seek(at)
        data = stream.read(window)
        try:
            reader = _Compact(data)
            return reader.struct(0), reader.at
        except IndexError:  # longer than the window
            if len(data) < window:
                break
    raise ValueError("a page whose header does not end")


class _Compact:
    """Reads structs in the compact protocol; texts and lists are passed over.

    Raises:
        IndexError: the data end before the struct does. ValueError: they are no struct.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int) -> Fields:
        """Returns the numbers and structs of a struct by field."""
        if depth > _MAX_DEPTH:
            raise ValueError("structs too deep")
        found: Fields = {}
        field = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            field = field + step if step else self._signed()
            found[field] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                self._skip(8)
            case 8:
                self._skip(self._unsigned())
            case 9 | 10:
                self._list(depth)
            case 12:
                return self.struct(depth + 1)
            case _:
                raise ValueError(f"a field of kind {kind}")
        return None

    def _list(self, depth: int) -> None:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        for _ in range(count):
            if head & 15 in (1, 2):
                self._byte()
            else:
                self._value(head & 15, depth + 1)

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError
