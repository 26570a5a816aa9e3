"""The object of a batch: its bytes, and every change of them."""

import hashlib

import pytest

from ingest.core.errors import DamageError
from replay.log.batch import HEAD_BYTES, NAME, EventBatch, batch_name, decoded, encoded

BATCH = EventBatch("0123456789abcdef" * 2, b'{"first_seq":0}\n', b"PAR1 data PAR1")


def test_an_object_composed_by_hand_is_read() -> None:
    start = b"twin.batch/1 0123456789abcdef0123456789abcdef 0000000016 "
    body = b'{"first_seq":0}\nPAR1 data PAR1'
    by_hand = start + hashlib.sha256(start + body).hexdigest().encode() + b"\n" + body
    assert encoded(BATCH) == by_hand
    assert decoded("x", by_hand) == BATCH
    assert len(by_hand) == HEAD_BYTES + len(body)


def test_every_changed_byte_and_every_cut_is_found() -> None:
    whole = encoded(BATCH)
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for broken in (flipped, whole[:at]):
            with pytest.raises(DamageError, match=r"s3://b/x: .*changed"):
                decoded("s3://b/x", broken)
    with pytest.raises(DamageError):
        decoded("s3://b/x", whole + b"\0")


def test_names_sort_as_their_numbers() -> None:
    names = [batch_name(seq) for seq in (0, 9, 10, 5_000, 10**18)]
    assert names == sorted(names)
    assert all(NAME.fullmatch(name) for name in names)
