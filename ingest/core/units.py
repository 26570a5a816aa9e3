"""The only place where units are converted; inside, everything is SI (b/s, bytes, seconds, watts)."""

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


def to_ns(seconds: float) -> int:
    """Seconds to integer nanoseconds, rounded once (half to even)."""
    return round(seconds * NS_PER_S)


def to_s(ns: int) -> float:
    """Integer nanoseconds to seconds."""
    return ns / NS_PER_S


def transmission_s(size_bytes: float, bandwidth_bps: float) -> float:
    """Seconds that `size_bytes` occupy a link of `bandwidth_bps`; infinite on a dead link."""
    return size_bytes * BITS_PER_BYTE / bandwidth_bps if bandwidth_bps > 0 else float("inf")


_RATES = {"b/s": 1.0, "kb/s": 1e3, "Mb/s": MBPS, "Gb/s": GBPS}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": GB, "KiB": 1024.0, "MiB": float(MIB), "GiB": float(GIB)}
_UNITS: dict[str, dict[str, float]] = {
    "_bps": _RATES | {f"{name}/s": size * BITS_PER_BYTE for name, size in _BYTES.items()},
    "_bytes_s": {f"{name}/s": size for name, size in _BYTES.items()}
    | {name: rate / BITS_PER_BYTE for name, rate in _RATES.items()},
    "_bytes": _BYTES,
    "bytes": _BYTES,
    "_s": {"s": 1.0, "ms": MS, "us": US, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    "_w": {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    "_j": {"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6},
    "_mhz": {"MHz": 1.0, "GHz": 1e3, "kHz": 1e-3, "Hz": 1e-6},
    "_c": {"C": 1.0},
    "": {"1": 1.0, "%": 0.01},
}


def units_of(column: str) -> dict[str, float]:
    """Units that files may hold a canonical column in, with the factor to the unit in the column's name."""
    endings = sorted((e for e in _UNITS if column.endswith(e)), key=len)
    return _UNITS[endings[-1]]
