"""Pickles and checkpoints that cost more than they are long: hashes of nested tuples, giant tensors."""

import hashlib
import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import policy.hippo
from ingest.core.errors import InputError
from ingest.parsing import safe_pickle
from policy.hippo.networks import checkpoint, checkpoint_content

SHIPPED = next((Path(policy.hippo.__file__).with_name("shipped")).glob("hippo-*.pt"))
LEVELS = 25
"""Hashing or printing what `nested` makes takes 2^25 steps."""


def nested(levels: int = LEVELS) -> bytes:
    """Instructions that leave one tuple on the stack, which holds a smaller one twice, and so on."""
    return b"K\x01" + b"2\x86" * levels  # 1, then: duplicate, make a pair


def saved(pickled: bytes, **parts: bytes) -> bytes:
    """A file as `torch.save` writes it, with that pickle."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as out:
        out.writestr("a/data.pkl", pickled)
        for name, content in {"version": b"3\n", **parts}.items():
            out.writestr(f"a/{name}", content)
    return held.getvalue()


def call(module: str, name: str, arguments: bytes) -> bytes:
    return b"\x80\x02c" + module.encode() + b"\n" + name.encode() + b"\n" + arguments + b"R."


STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu%stQ"


def tensor(items: bytes, size: bytes, stride: bytes) -> bytes:
    stored = STORAGE.replace(b"%s", items)
    return call("torch._utils", "_rebuild_tensor_v2", b"(" + stored + b"K\x00" + size + stride + b"\x89}t")


@pytest.mark.parametrize(
    ("instructions", "says"),
    [
        (b"}" + nested() + b"K\x01s.", "a key is neither"),
        (b"}(" + nested() + b"K\x01u.", "a key is neither"),
        (b"\x8f(" + nested() + b"\x90.", "holds a set"),
        (b"(" + nested() + b"\x91.", "holds a set"),
        (b"cnumpy\ndtype\n" + nested() + b"\x85R.", "something else than numbers"),
        (nested() + b".", "not a list"),
        (b"c" + b"a" * 10**6 + b"\nb\n.", "refused"),
    ],
)
def test_a_pickle_is_not_hashed_or_printed_at_length(instructions: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        safe_pickle.load(b"\x80\x04" + instructions, "x.pkl")
    assert len(str(caught.value)) < 500


FOUR, EIGHT = {"data/0": b"1234"}, {"data/0": b"12345678"}
MANY = b"J\x00\x00\x00\x10"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (saved(b"\x80\x02}" + nested() + b"K\x01s."), "a key is neither"),
        (saved(call("posix", "system", b"X\x04\x00\x00\x00true\x85")), "it calls posix.system"),
        (saved(call("builtins", "bytearray", MANY + b"\x85")), "it calls builtins.bytearray"),
        (saved(call("collections", "Counter", nested())), "it calls collections.Counter"),
        (saved(tensor(MANY, b"K\x01\x85", b"K\x01\x85"), **FOUR), "larger than its part"),
        (saved(tensor(b"K\x01", MANY + b"\x85", b"K\x00\x85"), **FOUR), "impossible shape"),
        (saved(tensor(b"K\x02", b"K\x02K\x02\x86", b"K\x00K\x00\x86"), **EIGHT), "larger than its content"),
        (b"\x80\x02}.", "not a zip"),
        (saved(b"\x80\x02}.")[:-30], "not a zip"),
    ],
)
def test_a_checkpoint_is_looked_through_before_torch_reads_it(
    content: bytes, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=says):
        checkpoint_content.plain(content)
    path = tmp_path / f"hippo-{hashlib.sha256(content).hexdigest()}.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a Hi-PPO checkpoint") as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 700


def test_compressed_parts_are_refused() -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a/data.pkl", b"\x80\x02}.")
        out.writestr("a/data/0", bytes(64 * 1024**2))
    with pytest.raises(ValueError, match="compressed"):
        checkpoint_content.plain(held.getvalue())


def test_what_torch_saves_of_a_training_passes() -> None:
    network = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(network.parameters())
    network(torch.ones(3)).sum().backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    held = io.BytesIO()
    content = {
        "w": network.state_dict(),
        "o": optimiser.state_dict(),
        "n": None,
        "s": torch.zeros(()),
        "l": [1, 0.5],
    }
    torch.save(content, held)
    checkpoint_content.plain(held.getvalue())
    checkpoint_content.plain(SHIPPED.read_bytes())


CHANGES: dict[str, Callable[[checkpoint.Checkpoint], checkpoint.Checkpoint]] = {
    "a weight is lost": lambda c: replace(c, upper=dict(list(c.upper.items())[1:])),
    "another shape": lambda c: replace(c, lower={k: v[..., :1] for k, v in c.lower.items()}),
    "another type": lambda c: replace(c, upper={k: v.long() for k, v in c.upper.items()}),
    "no tensors": lambda c: replace(c, upper=dict.fromkeys(c.upper, 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_do_not_fit_are_a_message(change: str, tmp_path: Path) -> None:
    path = checkpoint.save(CHANGES[change](checkpoint.load(SHIPPED)), tmp_path)
    with pytest.raises(InputError, match="its weights are not those of its settings"):
        checkpoint.load(path)


def test_pickles_of_our_own_still_pass() -> None:
    assert pickle.loads(b"\x80\x04" + nested(3) + b".") == (((1, 1), (1, 1)), ((1, 1), (1, 1)))
