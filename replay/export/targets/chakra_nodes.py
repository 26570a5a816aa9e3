"""Messages of MLCommons Chakra, encoded: the metadata and nodes of an execution trace.

Definition: Chakra, `schema/protobuf/et_def.proto`; names of attributes are those that the workload layer of
ASTRA-sim reads. `ingest/readers/training/chakra.py` reads such files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

VERSION = "0.0.4"
COMPUTE, SEND, RECEIVE = 4, 5, 6
"""Types of nodes: COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE."""
_ATTRIBUTE_INT32, _ATTRIBUTE_INT64, _ATTRIBUTE_BOOL = 7, 9, 27


@dataclass(frozen=True, slots=True)
class Transfer:
    """A message of `size_bytes` between ranks; the sender's and the receiver's node have the same tag."""

    source: int
    target: int
    size_bytes: int
    tag: int


@dataclass(frozen=True, slots=True)
class TraceNode:
    """An operation: it begins when those of `data` and `control`, by their numbers, are done.

    `start_us`, `duration_us`: 0 where the network decides.
    """

    number: int
    name: str
    kind: int
    data: tuple[int, ...] = ()
    control: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    transfer: Transfer | None = None

    def encoded(self) -> bytes:
        """Returns the message `Node`."""
        found = counted(1, self.number) + held(2, self.name.encode()) + counted(3, self.kind)
        found += _packed(4, self.control) + _packed(5, self.data)
        if self.duration_us:
            found += counted(6, self.start_us) + counted(7, self.duration_us)
        return found + b"".join(held(10, one) for one in self._attributes())

    def _attributes(self) -> list[bytes]:
        found = [_attribute("is_cpu_op", _ATTRIBUTE_BOOL, 0)]
        if (one := self.transfer) is not None:
            found += [
                _attribute("comm_src", _ATTRIBUTE_INT32, one.source),
                _attribute("comm_dst", _ATTRIBUTE_INT32, one.target),
                _attribute("comm_size", _ATTRIBUTE_INT64, one.size_bytes),
                _attribute("comm_tag", _ATTRIBUTE_INT32, one.tag),
            ]
        return found


def trace(nodes: Sequence[TraceNode]) -> bytes:
    """Returns an execution trace: metadata, then nodes, each message behind its length."""
    messages = [held(1, VERSION.encode()), *(node.encoded() for node in nodes)]
    return b"".join(varint(len(message)) + message for message in messages)


def varint(value: int) -> bytes:
    """Returns a whole number from 0 in groups of seven bits."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def counted(field: int, value: int) -> bytes:
    """Returns a field that is a whole number."""
    return varint(field << 3) + varint(value)


def held(field: int, value: bytes) -> bytes:
    """Returns a field that is bytes, text or a message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def _packed(field: int, values: Sequence[int]) -> bytes:
    return held(field, b"".join(map(varint, values))) if values else b""


def _attribute(name: str, kind: int, value: int) -> bytes:
    return held(1, name.encode()) + counted(kind, value)
