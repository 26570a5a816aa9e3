"""Kits of traces in Protocol Buffers: event files of TensorBoard, execution traces of Chakra."""

import struct

from ingest.readers.training.tensorboard import masked_crc32c
from tests.support.kit import Bad, Kit

T0 = 1_772_323_200


def varint(value: int) -> bytes:
    low = value & 0x7F
    return bytes([low | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([low])


def counted(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def held(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def record(data: bytes, *, spoilt: bool = False) -> bytes:
    size = struct.pack("<Q", len(data))
    check = masked_crc32c(data) ^ spoilt
    return size + struct.pack("<I", masked_crc32c(size)) + data + struct.pack("<I", check)


def logged(step: int, wall_s: float, tag: str = "loss", value: float = 2.5, **changes: bool) -> bytes:
    scalar = held(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    event = b"\x09" + struct.pack("<d", wall_s) + counted(2, step) + held(5, held(1, scalar))
    return record(event, **changes)


VERSION = record(b"\x09" + struct.pack("<d", float(T0)) + held(3, b"brain.Event:2"))


def node(number: int, name: bytes = b"gemm", start_us: int = 10, time_us: int = 5) -> bytes:
    made = counted(1, number) + held(2, name) + counted(3, 4) + held(4, varint(1) + varint(2))
    made += counted(6, start_us) + counted(7, time_us) if time_us else b""
    return varint(len(made)) + made


CHAKRA = varint(7) + held(1, b"0.0.4")

KITS = (
    Kit(
        "tensorboard",
        "run1/events.out.tfevents.1772323200.node7.1.0",
        VERSION
        + logged(1, T0 + 1.0)
        + logged(2, T0 + 3.5)
        + logged(2, T0 + 3.6, "lr")
        + logged(12, T0 + 23.5),
        {"step_times": 2},
        (
            Bad(
                "a record is damaged",
                VERSION + logged(1, 1.0) + logged(2, 3.0, spoilt=True) + logged(3, 5.0),
                1,
                1,
                "checksum is wrong",
            ),
            Bad(
                "cut", (VERSION + logged(1, 1.0) + logged(2, 3.0) + logged(3, 5.0))[:-9], 1, 1, "ends inside"
            ),
            Bad("a restart", VERSION + logged(9, 1.0) + logged(2, 3.0) + logged(3, 5.0), 1, 1, "a restart"),
            Bad(
                "negative",
                VERSION + logged(1, 1.0, "iteration-time", -1.0) + logged(2, 2.0, "iteration-time", 0.5),
                1,
                1,
                "negative",
            ),
        ),
        text=False,
    ),
    Kit(
        "chakra",
        "llama.3.et",
        CHAKRA + node(1, b"root", time_us=0) + node(2) + node(3, b"ncclAllReduce", 20, 300),
        {"op_times": 2},
        (
            Bad("cut", (CHAKRA + node(1) + node(2))[:-3], 1, 1, "ends inside"),
            Bad("no name", CHAKRA + node(1, b"") + node(2), 1, 1, "is not a name"),
            Bad("zeros", CHAKRA + node(1) + bytes(64) + node(2), 1, 1, "is empty"),
            Bad("days", CHAKRA + node(1, time_us=10**12) + node(2), 1, 1, "not microseconds"),
            Bad("another message", CHAKRA + varint(3) + b"\x0b\x01\x02" + node(2), 1, 1, "not a message"),
        ),
        text=False,
    ),
)
