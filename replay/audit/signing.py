"""Signatures of runs: the chain head of a run, signed with an Ed25519 key.

A signature is a small JSON file in `<store>/signatures`, outside the runs. It names the run, a head of its
chain, and the digest and number of the events up to that head. It is checked with the public key and the
files of the run: the signed head must be a link of the chain. So a run that still grows is signed up to its
last segment, whatever comes later; signing it again extends that.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.core import durable, extras, integrity
from ingest.core.errors import DamageError, InputError, NotFoundError
from replay.log.events import canonical
from replay.log.run_log import RunReader
from replay.log.segment_index import SegmentIndex
from replay.store import run_index

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FOLDER = "signatures"
SCHEMA = "twin.signature/1"
FIELDS = ("run", "chain_head", "digest", "events", "public_key", "signature")
MAKE_KEY = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out public.pem"


@dataclass(frozen=True, slots=True)
class Signature:
    """A signed claim about a run, the signer's public key and the signature over the claim (hex)."""

    run: str
    chain_head: str
    digest: str
    events: int
    public_key: str
    signature: str

    def claim(self) -> bytes:
        """Returns the bytes that are signed."""
        fields = {"schema": SCHEMA, "run": self.run, "chain_head": self.chain_head}
        return canonical({**fields, "digest": self.digest, "events": self.events}).encode()

    def to_json(self) -> dict[str, Any]:
        """Returns the object in the file."""
        return {
            **json.loads(self.claim()),
            "public_key": self.public_key,
            "signature": self.signature,
        }


def path_of(store: Path, run_id: str) -> Path:
    """Returns the file of the signature of a run."""
    return store / FOLDER / f"{run_id}.json"


def sign(store: Path, run_id: str, key: Path, head: str | None = None) -> Signature:
    """Signs a run up to the segment with this chain head [the last], which the caller has audited.

    Replaces an older signature.

    Raises:
        NotFoundError: no such run, head or key. InputError: the file holds no Ed25519 private key.
        UsageError: `cryptography` is not installed.
    """
    chain = RunReader(run_index.folder(store, run_id)).contents().chain
    last = next((one for one in reversed(chain) if head in (None, one.hash)), None)
    if last is None:
        raise NotFoundError(f"{run_id}: no segment of it can be signed; start the run, then audit it again")
    private = _private(key)
    public = private.public_key().public_bytes_raw().hex()
    unsigned = Signature(run_id, last.hash, last.stream, last.last_seq + 1, public, "")
    done = replace(unsigned, signature=private.sign(unsigned.claim()).hex())
    durable.replace(path_of(store, run_id), canonical(done.to_json()).encode() + b"\n")
    return done


def verified(store: Path, run_id: str, key: Path) -> Signature:
    """Returns the signature of a run after checking it with the public key in the file `key`.

    The audit then checks that the chain of the run holds `chain_head`.

    Raises:
        NotFoundError: there is no signature or no key. InputError: the file holds no Ed25519 public key.
        DamageError: the signature is not one of this run by this key.
        UsageError: `cryptography` is not installed.
    """
    path = path_of(store, run_id)
    if not path.is_file():
        raise NotFoundError(f"{path}: the run was not signed; `twin audit {run_id} --sign KEY` signs it")
    public = _public(key)
    from cryptography.exceptions import InvalidSignature

    try:
        fields = json.loads(path.read_bytes())
        found = Signature(*(fields[name] for name in FIELDS))
        public.verify(bytes.fromhex(found.signature), found.claim())
        if found.to_json() != fields or found.public_key != public.public_bytes_raw().hex():
            raise ValueError("it says more than was signed")
    except (InvalidSignature, ValueError, KeyError, TypeError, RecursionError) as error:
        why = "made with another key, or changed" if isinstance(error, InvalidSignature) else str(error)
        raise DamageError(
            f"{path}: not a signature by the key in {key} ({why}); "
            "check with the key of who signed, or sign again"
        ) from error
    if found.run != run_id:
        raise DamageError(f"{path}: is the signature of {found.run}; audit that run, or sign this one")
    return found


def covered_events(store: Path, signed: Signature) -> int:
    """Returns how many events of its run a signature proves: those up to the signed head; 0: none.

    Earlier versions counted events behind that head, too, in a run that was not finished.
    """
    chain = RunReader(run_index.folder(store, signed.run)).contents().chain
    return next((one.last_seq + 1 for one in chain if one.hash == signed.chain_head), 0)


def contradiction(store: Path, run_id: str, found: SegmentIndex) -> str | None:
    """Returns how the signature of a run contradicts its chain; None: it does not, or there is none.

    Needs no key of the user: it tells a log that lost its end or was rewritten and a signature that was
    changed, not who signed. The bytes of the signature itself are checked where `cryptography` is installed.
    """
    path = path_of(store, run_id)
    try:
        data = integrity.read_optional(path)
        if data is None:
            return None
        fields = json.loads(data)
        signed = Signature(*(fields[name] for name in FIELDS))
        last = {manifest.hash: manifest for manifest in found.chain}.get(signed.chain_head)
        if last is None:
            return (
                f"{path}: was made for the chain head {signed.chain_head}, which the log does not hold: its "
                "end is missing, or it was rewritten; restore it, or delete the signature"
            )
        events = last.last_seq + 1
        if not last.final and signed.events > events:  # versions before counted events behind the signed head
            events = signed.events
        claimed = replace(signed, run=run_id, digest=last.stream, events=events)
        if canonical(claimed.to_json()).encode() + b"\n" != data or not _by_own_key(signed):
            raise ValueError("its bytes are not those that were written")
    except DamageError as error:
        return str(error)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return f"{path}: not a signature of this run ({error}); delete it and sign the run again"
    return None


def _by_own_key(signed: Signature) -> bool:
    """False if the signature is not by the key that it names; True without `cryptography`."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return True
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed.public_key))
        public.verify(bytes.fromhex(signed.signature), signed.claim())
    except InvalidSignature:
        return False
    return True


def _private(path: Path) -> "Ed25519PrivateKey":
    data = _read(path)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: not a PEM private key without a password ({error}); {MAKE_KEY}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: not an Ed25519 key; {MAKE_KEY}")
    return key


def _public(path: Path) -> "Ed25519PublicKey":
    data = _read(path)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(data)
    except ValueError as error:
        raise InputError(f"{path}: not a PEM public key ({error}); {MAKE_KEY}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path}: not an Ed25519 key; {MAKE_KEY}")
    return key


def _read(path: Path) -> bytes:
    try:
        import cryptography  # noqa: F401 - an optional extra
    except ImportError:
        raise extras.missing("sign", "a signature") from None
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(
            f"{path}: cannot be read ({error.strerror}); a key is made with: {MAKE_KEY}"
        ) from error
