"""The only place where units are converted; everything inside is SI (bits per second, bytes, seconds, watts)."""

NS_PER_S = 1_000_000_000
BITS_PER_BYTE = 8
MBPS = 1e6
"""Bits per second in one Mb/s."""
GBPS = 1e9
"""Bits per second in one Gb/s."""
KBYTE_PER_S = 8e3
"""Bits per second in one kbyte/s."""
MIB = 1024**2
GIB = 1024**3
GB = 1e9
"""Bytes in the decimal gigabyte that clouds bill."""
MS = 1e-3
US = 1e-6
SPEED_OF_LIGHT_IN_FIBRE_M_S = 2.0e8


def to_ns(seconds: float) -> int:
    """Seconds to integer nanoseconds, rounded once (half to even)."""
    return round(seconds * NS_PER_S)


def to_s(ns: int) -> float:
    """Integer nanoseconds to seconds."""
    return ns / NS_PER_S


def transmission_s(size_bytes: float, bandwidth_bps: float) -> float:
    """Seconds that `size_bytes` occupy a link of `bandwidth_bps`; infinite on a dead link."""
    return size_bytes * BITS_PER_BYTE / bandwidth_bps if bandwidth_bps > 0 else float("inf")
