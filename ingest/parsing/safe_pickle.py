"""Python pickles of numeric arrays, read without running anything that a pickle names.

A pickle can name any function and have it called. Here nothing is imported: the few names that NumPy arrays
need stand for small classes of our own, every other name is refused. The Python implementation of the
machine is used, because the one in C sets aside as much memory as a pickle asks for.
"""

import io
import pickle
import struct
from typing import Any, ClassVar

import numpy as np

from ingest.core.errors import InputError
from ingest.core.terminal import SENTENCE, clipped

_KINDS = {f"{kind}{size}" for kind in "fiu" for size in (1, 2, 4, 8)} - {"f1"} | {"b1"}
_RECONSTRUCT = frozenset({"numpy.core.multiarray", "numpy._core.multiarray"})
_NUMERIC = frozenset({"numpy.core.numeric", "numpy._core.numeric"})
DAMAGE = (  # what the machine raises for bytes of any kind
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, OverflowError, RecursionError, UnicodeError, AssertionError, struct.error),
)


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


class Refused(Exception):  # noqa: N818 - callers make messages of it
    """A name that a pickle calls and that is not known."""


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


def _byte_array(machine: Any) -> None:
    """Put a byte array on the stack, made of what is there: Python's own sets aside what is asked for."""
    (length,) = struct.unpack("<Q", machine.read(8))
    data = machine.read(length)
    if len(data) != length:
        raise EOFError("a byte array is cut")
    machine.append(bytearray(data))


def _item(machine: Any) -> None:
    """Set one item of a dictionary."""
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.stack[-1][_key(key)] = value


def _items(machine: Any) -> None:
    """Set the items of a dictionary above the mark."""
    items = machine.pop_mark()
    for key, value in zip(items[::2], items[1::2], strict=True):
        machine.stack[-1][_key(key)] = value


def _key(key: Any) -> str | int:
    # The hash of a tuple that holds a smaller one twice, and so on, takes twice as long a level.
    if not isinstance(key, str | int):
        raise pickle.UnpicklingError("a key is neither a text nor a number")
    return key


def _no_set(_: Any) -> None:
    """Refuse a set, whose members would be hashed."""
    raise pickle.UnpicklingError("it holds a set")


class Machine(pickle._Unpickler):
    """The pickle machine in Python, which takes no more memory and time than the pickle is long.

    A subclass says which names there are; the caller catches `DAMAGE`.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: _byte_array,
        pickle.SETITEM[0]: _item,
        pickle.SETITEMS[0]: _items,
        **dict.fromkeys((pickle.EMPTY_SET[0], pickle.ADDITEMS[0], pickle.FROZENSET[0]), _no_set),
    }


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
