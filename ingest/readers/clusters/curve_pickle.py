"""Pickled distributions of AcmeTrace: a list `[x1, y1, x2, y2, ...]` of arrays, y the cumulative per cent.

Each pair is one curve of `distributions`; a row is a point, `source_row` counts them over the file from 1.
What a curve shows stands in the file's name and its place in the list; the files themselves say nothing.
Read by `ingest.parsing.safe_pickle`: a pickle that names anything but numeric arrays is refused.
"""

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from ingest.core.errors import InputError
from ingest.parsing import safe_pickle
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_TABLE = "distributions"
_GPU = (
    "gpu_util_percent",
    "gpu_memory_percent",
    "sm_active_percent",
    "activity_percent",
    "sm_occupancy_percent",
)
_QUANTITIES = {
    "util_gpu": _GPU,
    "util_cpu_mem": ("cpu_percent", "host_memory_percent"),
    "gpu_power": ("gpu_power_w",),
    "gpu_temp": ("gpu_temp_c", "gpu_memory_temp_c"),
    "server_power": ("gpu_server_power_w", "cpu_server_power_w"),
    "ib": ("infiniband_send", "infiniband_receive"),
}
"""Beginning of the file's name: what its curves show, in their order."""


class CurvePickle:
    """Cumulative distributions over a cluster."""

    name = "curve-pickle"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is a pickle of protocol 2 or later, and its name one of AcmeTrace's."""
        return path.suffix == ".pkl" and head[:1] == b"\x80" and _named(path.stem) is not None

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a batch for each curve."""
        arrays = safe_pickle.load(source.data(), source.shown)
        if len(arrays) % 2 or not all(_is_row(a) for a in arrays):
            raise InputError(f"{source.shown}: not a list of pairs of numeric rows")
        names = _named(source.path.stem) or ()
        first = 1
        for at in range(len(arrays) // 2):
            value, percent = arrays[2 * at], arrays[2 * at + 1]
            if len(value) != len(percent):
                raise InputError(
                    f"{source.shown}: curve {at + 1} has {len(value)} values, {len(percent)} shares"
                )
            quantity = names[at] if at < len(names) else f"curve {at + 1}"
            yield _batch(source.path.stem, quantity, value, percent, first)
            first += len(value)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "curve-pickle: what a curve shows is taken from the file's name and its place in the file; the "
            "unit of InfiniBand curves is not known",
        )


def _named(stem: str) -> tuple[str, ...] | None:
    return next(
        (names for start, names in _QUANTITIES.items() if stem.startswith(f"{start}_") or stem == start), None
    )


def _is_row(array: np.ndarray) -> bool:
    return array.ndim == 1


def _batch(name: str, quantity: str, value: np.ndarray, percent: np.ndarray, first: int) -> RowBatch:
    count = len(value)
    columns = {
        "source_row": list(range(first, first + count)),
        "name": [name] * count,
        "quantity": [quantity] * count,
        "value": value.astype(np.float64).tolist(),
        "cumulative": (percent.astype(np.float64) / 100).tolist(),  # per cent
    }
    return RowBatch(_TABLE, columns, count)
