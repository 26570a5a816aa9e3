"""Pickles that try more than to hold arrays."""

import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.core.errors import InputError
from ingest.parsing import safe_pickle

ROW = np.arange(5.0)


class Calls:
    """Has a function called when it is unpickled."""

    def __init__(self, function: Any, *given: Any):
        self.function, self.given = function, given

    def __reduce__(self) -> Any:
        return self.function, self.given


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("kind", ["<f8", ">f4", "<i4", "u1", "?"])
def test_arrays_come_back_equal(kind: str, protocol: int) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    (second,) = safe_pickle.load(pickle.dumps([array], protocol=protocol), "x.pkl")
    assert second.dtype == array.dtype.newbyteorder("=") or second.dtype == array.dtype
    np.testing.assert_array_equal(second, array)
    (columns,) = safe_pickle.load(pickle.dumps([np.asfortranarray(array)], protocol=protocol), "x.pkl")
    np.testing.assert_array_equal(columns, array)


def test_nothing_is_called(tmp_path: Path) -> None:
    made = tmp_path / "made"
    hostile = [
        Calls(os.system, f"touch {made}"),
        Calls(eval, f"open({str(made)!r}, 'w')"),
        Calls(Path.touch, made),
        Calls(np.zeros, 10**12),
        Calls(np.load, str(made)),
        Calls(getattr, ROW, "tofile"),
    ]
    for protocol in range(2, 6):
        for value in hostile:
            with pytest.raises(InputError, match="refused: the pickle calls"):
                safe_pickle.load(pickle.dumps([ROW, value], protocol=protocol), "x.pkl")
    assert not made.exists()


def test_our_own_names_cannot_be_changed() -> None:
    for name in (b"numpy\ndtype\n", b"numpy\nndarray\n", b"numpy.core.multiarray\n_reconstruct\n"):
        data = b"\x80\x03]c" + name + b"}X\x04\x00\x00\x00codeX\x02\x00\x00\x00f8sba."
        with pytest.raises(InputError):
            safe_pickle.load(data, "x.pkl")
    assert len(safe_pickle.load(pickle.dumps([ROW], protocol=4), "x.pkl")) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04.",
        b"\x80\x04K\x01.",
        b"\x80\x04]r" + struct.pack("<I", 2**32 - 2) + b".",  # a slot far beyond the others
        b"\x80\x04]" + b"2" * 100_000 + b".",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",  # a text longer than any memory
        b"\x80\x04" + b"(" * 100_000 + b"l.",
        pickle.dumps([np.array([object()])], protocol=4),
        pickle.dumps([np.array([(1, 2.0)], dtype="i4,f8")], protocol=4),
        pickle.dumps({"a": ROW}, protocol=4),
        pickle.dumps([[ROW]], protocol=4),
        pickle.dumps([ROW] * 1000, protocol=4),
        pickle.dumps([ROW, 1], protocol=4),
    ],
)
def test_other_contents_are_refused_cheaply(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(InputError):
        safe_pickle.load(data, "x.pkl")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50 * 1024**2


def test_every_cut_is_an_error_for_the_user() -> None:
    whole = pickle.dumps([ROW, ROW + 1], protocol=4)
    for cut in range(len(whole)):
        with pytest.raises(InputError):
            safe_pickle.load(whole[:cut], "x.pkl")
