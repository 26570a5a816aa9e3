"""Content of a checkpoint file, looked through before torch reads it: who sends one may mean harm.

torch calls nothing that a pickle names but its own functions. Those still hash, print and allocate what the
pickle asks for. Here its instructions run first, on stand-ins, and all but dictionaries, lists and tensors
that the file itself holds are refused.
"""

import io
import math
import zipfile
from typing import Any

from ingest.parsing.pickle_machine import DAMAGE, Machine, Refused

_ITEM_BYTES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1,
    "Byte": 1, "Bool": 1,
}  # fmt: skip
MOST_PICKLE_BYTES = 16 * 1024**2
_REFUSED = (*DAMAGE, Refused, zipfile.BadZipFile, RuntimeError)  # RuntimeError: it is encrypted


def plain(data: bytes) -> Any:
    """Returns what a file of `torch.save` holds, with stand-ins for tensors, after checking that it is plain
    values and tensors and no more than its bytes.

    Raises:
        ValueError: it does not; says why.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as held:
            sizes = {info.filename: info.file_size for info in held.infolist()}
            if sum(sizes.values()) > len(data) or any(info.compress_type for info in held.infolist()):
                raise ValueError("its parts are compressed or overlap")
            (pickled,) = (name for name in sizes if name.rpartition("/")[2] == "data.pkl")
            if sizes[pickled] > MOST_PICKLE_BYTES:
                raise ValueError("it has more parts than any network")
            folder = pickled.removesuffix("data.pkl")
            return _Plain(
                held.read(pickled), {name.removeprefix(folder): size for name, size in sizes.items()}
            ).load()
    except Refused as error:
        raise ValueError(f"it calls {error}") from None
    except _REFUSED as error:
        raise ValueError(str(error) or type(error).__name__) from None


class _Dictionary(dict[str, Any]):
    """Stands for `collections.OrderedDict`; torch adds attributes to the one of a network."""


class _Tensor:
    """Stands for the function that makes a tensor of a stored array."""

    def __init__(self, stored: Any, offset: Any, size: Any, stride: Any, *_: Any):
        if not isinstance(stored, _Stored):
            raise ValueError("a tensor without content")
        numbers = (offset, *size, *stride)
        if len(size) != len(stride) or not all(type(n) is int and 0 <= n <= stored.items for n in numbers):
            raise ValueError("a tensor of an impossible shape")
        if math.prod(size) > stored.items:
            raise ValueError("a tensor larger than its content")


class _Stored:
    """Stands for an array of the file."""

    def __init__(self, items: int):
        self.items = items


class _Plain(Machine):
    """The pickle machine, with the names that a checkpoint needs."""

    def __init__(self, data: bytes, sizes: dict[str, int]):
        super().__init__(io.BytesIO(data))
        self._sizes = sizes

    def find_class(self, module: str, name: str) -> Any:
        """Stand-in for a name of torch; storages stand for the bytes of an item."""
        if (module, name) == ("collections", "OrderedDict"):
            return _Dictionary
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if module == "torch" and name.removesuffix("Storage") in _ITEM_BYTES:
            return _ITEM_BYTES[name.removesuffix("Storage")]
        raise Refused(f"{module}.{name}")

    def persistent_load(self, named: Any) -> _Stored:
        """Stand-in for an array: ("storage", type, file, device, items)."""
        what, item_bytes, file, _, items = named
        if what != "storage" or not isinstance(file, str) or type(items) is not int:
            raise ValueError("a part that is no array")
        if items < 0 or items * item_bytes > self._sizes.get(f"data/{file}", -1):
            raise ValueError("an array larger than its part of the file")
        return _Stored(items)
