"""The machine that runs the instructions of a pickle, with the names that a subclass gives and no others.

A pickle can name any function and have it called. Here nothing is imported: a subclass says what a name
stands for. The Python implementation of the machine is used, because the one in C sets aside as much memory
as a pickle asks for.
"""

import pickle
import struct
from typing import Any, ClassVar

DAMAGE = (  # what the machine raises for bytes of any kind
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, OverflowError, RecursionError, UnicodeError, AssertionError, struct.error),
)


class Refused(Exception):  # noqa: N818 - callers make messages of it
    """A name that a pickle calls and that is not known."""


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
