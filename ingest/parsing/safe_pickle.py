"""Python pickles of numeric arrays, read without running anything that a pickle names.

The few names that NumPy arrays need stand for small classes of our own, every other name is refused.
"""

import io
from typing import Any

import numpy as np

from ingest.core.errors import InputError
from ingest.core.terminal import SENTENCE, clipped
from ingest.parsing.pickle_machine import DAMAGE, Machine, Refused

_KINDS = {f"{kind}{size}" for kind in "fiu" for size in (1, 2, 4, 8)} - {"f1"} | {"b1"}
_RECONSTRUCT = frozenset({"numpy.core.multiarray", "numpy._core.multiarray"})
_NUMERIC = frozenset({"numpy.core.numeric", "numpy._core.numeric"})


def load(data: bytes, shown: str) -> list[Any]:
    """The list of NumPy arrays of numbers in a pickle.

    Raises:
        InputError: it needs anything else, or is damaged.
    """
    try:
        return _arrays(_Plain(io.BytesIO(data)).load(), len(data))
    except Refused as error:
        raise InputError(
            f"{shown}: refused: the pickle calls {clipped(str(error))}; only arrays of numbers are read"
        ) from error
    except DAMAGE as error:
        raise InputError(
            f"{shown}: not a pickle of arrays of numbers ({clipped(str(error), SENTENCE)})"
        ) from error


class _Kind:
    """A numeric type, as `numpy.dtype` is pickled."""

    def __init__(self, code: Any = None, *_: Any):
        if not isinstance(code, str) or code not in _KINDS:
            raise ValueError("an array of something else than numbers")
        self.code, self.order = code, "<"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1] if state[1] in ("<", ">") else "<"

    @property
    def numpy(self) -> "np.dtype[Any]":
        """The type itself."""
        made: np.dtype[Any] = np.dtype(self.order + self.code)
        return made


class _Array:
    """An array, as `numpy.ndarray` is pickled: made empty by `_reconstruct`, then filled."""

    def __init__(self, *_: Any):
        self.values: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, column_major, raw = state
        self.fill(raw, kind, shape, "F" if column_major else "C")

    def fill(self, raw: Any, kind: _Kind, shape: Any, order: Any) -> None:
        """Take the content from raw bytes."""
        self.values = np.frombuffer(raw, kind.numpy).reshape(shape, order=order)


class _Buffer(_Array):
    """An array as protocol 5 pickles it, in one step."""

    def __init__(self, raw: Any, kind: _Kind, shape: Any, order: Any):
        super().__init__()
        self.fill(raw, kind, shape, order)


class _Plain(Machine):
    """The pickle machine, with names that mean nothing but arrays."""

    def find_class(self, module: str, name: str) -> Any:
        """Our stand-in for a name of NumPy."""
        if (module, name) == ("numpy", "dtype"):
            return _Kind
        if (module, name) == ("numpy", "ndarray") or (module in _RECONSTRUCT and name == "_reconstruct"):
            return _Array
        if module in _NUMERIC and name == "_frombuffer":
            return _Buffer
        raise Refused(f"{module}.{name}")


def _arrays(value: Any, most_bytes: int) -> list[Any]:
    """The arrays of a list, in place of their stand-ins."""
    if (
        not isinstance(value, list | tuple)
        or not value
        or not all(isinstance(item, _Array) for item in value)
    ):
        raise ValueError("not a list of arrays")
    arrays = [item.values for item in value]
    if any(array is None for array in arrays):
        raise ValueError("an array without content")
    if sum(array.nbytes for array in arrays) > most_bytes:
        raise ValueError("one array is listed again and again")
    return arrays
