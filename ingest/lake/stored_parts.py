"""Parts of the lake as files: with the bytes that their manifest says, or an error that names them.

Those of a lake in a bucket are read into the working copy the first time they are needed; a file of it that
was damaged is read again.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core import integrity
from ingest.core.errors import DamageError
from ingest.lake import bucket_lake
from ingest.lake.bucket_lake import FOLDER
from ingest.lake.manifests import LakeManifest, Part


def bring(store: Path, manifests: Sequence[LakeManifest]) -> None:
    """Reads the parts that the working copy of a bucket lacks."""
    if (place := bucket_lake.of(store)) is not None:
        named = [(manifest.id, part.file) for manifest in manifests for part in manifest.parts]
        if lacking := [one for one in named if not (store / FOLDER / one[1]).exists()]:
            place.fetch(lacking)


def checked(store: Path, manifest: LakeManifest, part: Part) -> Path:
    """Returns the file of a part.

    Raises:
        DamageError: it is missing, or its bytes are not those that the manifest says.
    """
    path = store / FOLDER / part.file
    problem = integrity.fault(path, part.bytes, part.sha256)
    if problem is not None and (place := bucket_lake.of(store)) is not None:
        place.fetch([(manifest.id, part.file)])  # the working copy was damaged
        problem = integrity.fault(path, part.bytes, part.sha256)
    if problem is not None:
        raise DamageError(damaged(title(store, manifest, part), problem, manifest))
    return path


def content(store: Path, manifest: LakeManifest, part: Part) -> bytes:
    """Returns the bytes of a part, read and checked now.

    Raises:
        DamageError: as `checked`.
    """
    if bucket_lake.of(store) is not None:
        return integrity.read_regular(checked(store, manifest, part))
    path = store / FOLDER / part.file
    data = integrity.read_optional(path)
    if data is None or hashlib.sha256(data).hexdigest() != part.sha256:
        what = "missing" if data is None else "its bytes are not those that were written"
        raise DamageError(damaged(str(path), what, manifest))
    return data


def table(store: Path, manifest: LakeManifest, part: Part) -> pa.Table:
    """Returns the rows of a part, as they were written.

    Raises:
        DamageError: as `checked`; nothing damaged gets a new digest.
    """
    data = content(store, manifest, part)
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()


def title(store: Path, manifest: LakeManifest, part: Part) -> str:
    """Returns the path of a part, in a bucket its address."""
    place = bucket_lake.of(store)
    return str(store / FOLDER / part.file) if place is None else place.title(manifest.id, part.file)


def damaged(title: str, problem: str, manifest: LakeManifest) -> str:
    """Returns the sentence on a part that is not what was written, with the way out."""
    name = manifest.dataset
    way = f"restore it, or take {name} out (`twin traces {name} --drop`) and ingest it again"
    return f"{title}: {problem}; {way}"
