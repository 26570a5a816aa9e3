"""Index of the lake's committed manifests: a manifest that went away is noticed.

`<store>/lake/committed.json` names every manifest in use and its data set. It is replaced after a manifest is
committed and before one is deleted, so what it names is there or was replaced by one that is there. It may
lack the newest manifest after a crash, and lakes of older versions have none until the next ingest.
"""

from collections.abc import Mapping
from pathlib import Path

from ingest.core import durable, integrity
from ingest.core.errors import DamageError

NAME = "committed.json"
SCHEMA = "twin.lake.index/1"


def path_of(lake: Path) -> Path:
    """Returns the file of the index of a lake."""
    return lake / NAME


def read(lake: Path) -> dict[str, str] | None:
    """Returns the data set of every manifest in use, by the manifest's identity; None: there is no index.

    Raises:
        DamageError: it is not what was written.
    """
    path = path_of(lake)
    data = integrity.read_optional(path)
    if data is None:
        return None
    fields = integrity.unsealed(data, SCHEMA, {"manifests": dict[str, str]})
    if fields is None:
        raise DamageError(f"{path}: its bytes are not those that were written; delete it, it is made again")
    return dict(fields["manifests"])


def write(lake: Path, manifests: Mapping[str, str]) -> None:
    """Makes these the manifests in use; atomic."""
    durable.replace(
        path_of(lake), integrity.sealed({"schema": SCHEMA, "manifests": dict(sorted(manifests.items()))})
    )
