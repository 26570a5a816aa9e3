"""Signatures over chain heads: made, checked, and refused where anything is not what was signed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.core import durable
from ingest.core.errors import DamageError, InputError, NotFoundError, UsageError
from replay.audit import audit, signing
from replay.log.compaction import compact
from replay.log.events import canonical
from replay.log.run_log import RunReader, RunWriter
from tests.support import crash_workload as workload
from tests.support.histories import lose_end, write

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519", reason="extra `sign`")
from cryptography.hazmat.primitives import serialization  # noqa: E402 - after the check that it is there


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path / "runs" / "a")
    for name in ("ours", "theirs"):
        key = ed25519.Ed25519PrivateKey.generate()
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        plain = serialization.NoEncryption()
        (tmp_path / f"{name}.pem").write_bytes(key.private_bytes(pem, form, plain))
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / f"{name}.pub").write_bytes(public)
    return tmp_path


def test_a_signed_head_proves_the_run_also_after_compaction(store: Path) -> None:
    done = signing.sign(store, "a", store / "ours.pem")
    reader = RunReader(store / "runs" / "a")
    assert (done.chain_head, done.digest, done.events) == (reader.chain_head(), reader.digest(), 284)
    assert signing.verified(store, "a", store / "ours.pub") == done
    compact(store / "runs" / "a")
    assert reader.verify(signing.verified(store, "a", store / "ours.pub").chain_head) == []
    assert signing.sign(store, "a", store / "ours.pem") == done, "nothing that is signed has changed"


def test_another_key_and_any_changed_field_are_refused(store: Path) -> None:
    fields = signing.sign(store, "a", store / "ours.pem").to_json()
    with pytest.raises(DamageError, match="made with another key, or changed"):
        signing.verified(store, "a", store / "theirs.pub")
    path = signing.path_of(store, "a")
    changes = {"events": 1, "run": "b", "chain_head": "0" * 64, "digest": "", "public_key": "", "schema": "x"}
    for name, value in (*changes.items(), ("signature", "00"), ("more", 1)):
        path.write_text(json.dumps({**fields, name: value}))
        with pytest.raises(DamageError, match="not a signature by the key"):
            signing.verified(store, "a", store / "ours.pub")
    for text in ("", "[]", "{}", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(DamageError):
            signing.verified(store, "a", store / "ours.pub")
    path.write_text(json.dumps(fields))
    write(store / "runs" / "b")
    path.rename(signing.path_of(store, "b"))
    with pytest.raises(DamageError, match="is the signature of a"):
        signing.verified(store, "b", store / "ours.pub")


def test_what_is_no_key_is_said_with_the_way_to_make_one(store: Path) -> None:
    with pytest.raises(NotFoundError, match="the run was not signed"):
        signing.verified(store, "a", store / "ours.pub")
    with pytest.raises(NotFoundError, match="openssl genpkey"):
        signing.sign(store, "a", store / "nothing.pem")
    signing.sign(store, "a", store / "ours.pem")
    with pytest.raises(InputError, match="not a PEM private key"):
        signing.sign(store, "a", store / "ours.pub")
    with pytest.raises(InputError, match="not a PEM public key"):
        signing.verified(store, "a", store / "ours.pem")


def test_a_key_of_another_kind_is_refused(store: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (store / "ec.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (store / "ec.pub").write_bytes(public)
    with pytest.raises(InputError, match="not an Ed25519 key"):
        signing.sign(store, "a", store / "ec.pem")
    signing.sign(store, "a", store / "ours.pem")
    with pytest.raises(InputError, match="not an Ed25519 key"):
        signing.verified(store, "a", store / "ec.pub")


def test_without_the_extra_it_says_so(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(UsageError, match="extra 'sign'"):
        signing.sign(store, "a", store / "ours.pem")


@pytest.mark.parametrize("known", [True, False])
def test_a_signature_beside_a_log_that_lost_its_end_is_a_finding(store: Path, known: bool) -> None:
    signing.sign(store, "a", store / "ours.pem")
    path = signing.path_of(store, "a")
    assert signing.contradiction(store, "a", RunReader(store / "runs" / "a").contents()) is None
    if known:
        (max((store / "runs" / "a").glob("*.json"))).unlink()
    else:
        lose_end(store / "runs" / "a")
    report = audit.audit(store, "a")
    assert [finding.check for finding in report.findings] == ["chain" if known else "signature"]
    assert known or str(path) in report.findings[0].problem
    if not known:
        for text in ("[]", "{", "{}", "\xff"):
            path.write_text(text)
            assert "not a signature" in str(audit.audit(store, "a").findings[0])
        path.unlink()
        path.mkdir()
        assert "not a regular file" in str(audit.audit(store, "a").findings[0])


def test_any_flipped_bit_of_a_signature_is_found_without_the_key(store: Path) -> None:
    signing.sign(store, "a", store / "ours.pem")
    path, chain = signing.path_of(store, "a"), RunReader(store / "runs" / "a").contents()
    whole = path.read_bytes()
    for place in range(0, 8 * len(whole), 7):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        problem = signing.contradiction(store, "a", chain)
        assert problem is not None or bytes(flipped).lower() == whole, (
            "of hexadecimal digits the case may differ"
        )


def test_a_run_that_still_grows_is_signed_up_to_its_last_segment(store: Path) -> None:
    run_dir = store / "runs" / "live"
    with RunWriter.create(run_dir, flush_events=10, flush_s=10**9) as writer:

        def write(first: int, end: int) -> None:
            for number in range(first, end):
                writer.append(*workload.event(number))
            writer.flush()

        def sound(events: int, covered: int) -> None:
            chain = RunReader(run_dir).contents()
            assert chain.end == events and signing.contradiction(store, "live", chain) is None
            signed = signing.verified(store, "live", store / "ours.pub")
            assert RunReader(run_dir).verify(signed.chain_head) == []
            assert (signed.events, signing.covered_events(store, signed)) == (covered, covered)

        write(0, 25)
        sealed = RunReader(run_dir).contents().sealed
        assert sealed < 25, "the last events are in the tail"
        signing.sign(store, "live", store / "ours.pem")
        sound(25, sealed)
        write(25, 47)
        sound(47, sealed)
        head = RunReader(run_dir).chain_head()
        later = RunReader(run_dir).contents().sealed
        write(47, 95)
        signing.sign(store, "live", store / "ours.pem", head)
        sound(95, later)
        signing.sign(store, "live", store / "ours.pem")
        sound(95, RunReader(run_dir).contents().sealed)


def test_a_signature_of_a_version_that_counted_events_behind_the_head_proves_those_before_it(
    store: Path,
) -> None:
    run_dir = store / "runs" / "live"
    with RunWriter.create(run_dir, flush_events=10, flush_s=10**9) as writer:
        for number in range(25):
            writer.append(*workload.event(number))
        writer.flush()
        found = RunReader(run_dir).contents()
        key = serialization.load_pem_private_key((store / "ours.pem").read_bytes(), None)
        public = key.public_key().public_bytes_raw().hex()
        old = signing.Signature("live", found.head, found.chain[-1].stream, found.end, public, "")
        old = replace(old, signature=key.sign(old.claim()).hex())
        text = canonical(old.to_json()).encode() + b"\n"
        durable.replace(signing.path_of(store, "live"), text)
        assert signing.contradiction(store, "live", found) is None
        assert signing.covered_events(store, old) == found.sealed < old.events
        durable.replace(signing.path_of(store, "live"), text.replace(b'"events":25', b'"events":26'))
        assert signing.contradiction(store, "live", found) is not None
        signing.sign(store, "live", store / "ours.pem")
        assert signing.verified(store, "live", store / "ours.pub").events == found.sealed
