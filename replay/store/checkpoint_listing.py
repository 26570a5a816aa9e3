"""What `twin policies` lists: registered policies, and stored checkpoints with where they come from.

Headers of checkpoints are read as files and no policy is imported, so that it takes neither torch nor numba.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.core.errors import TwinError
from policy.core import registry
from policy.hippo.networks import checkpoint_file
from replay.store import checkpoint_registry, layout

if TYPE_CHECKING:
    from replay.store.checkpoint_lineage import LineageRecord

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A stored checkpoint with its lineage."""

    digest: str
    active: bool
    provenance: Json  # from the file itself: configuration, code, data, score
    records: tuple["LineageRecord", ...] = ()  # the trainings and retrainings that made it

    def to_json(self) -> Json:
        """Returns all fields by name."""
        made = [record.to_json() for record in self.records]
        return {"digest": self.digest, "active": self.active, "lineage": self.provenance, "records": made}


def policies(store: Path) -> Json:
    """The object of `twin policies --json`: registered policies and stored checkpoints with their lineage."""
    entries, problems = registry.listed()
    return {
        "schema": "twin.policies/1",
        "policies": [
            {"name": name, "summary": entry.summary, "learned": entry.learned}
            | ({"distribution": entry.distribution} if entry.distribution else {})
            for name, entry in entries.items()
        ],
        **({"problems": list(problems)} if problems else {}),
        "active": checkpoint_registry.active(store),
        "history": list(checkpoint_registry.history(store)),
        "checkpoints": [checkpoint.to_json() for checkpoint in checkpoints(store)],
    }


def checkpoints(store: Path) -> tuple[CheckpointInfo, ...]:
    """Returns every checkpoint of the store; a damaged one with the reason."""
    found = []
    current, made = checkpoint_registry.active(store), _trainings(store)
    for path in checkpoint_registry.stored(store):
        try:
            digest, data = checkpoint_file.verified(path)
            own = dict(checkpoint_file.header(path, data)["provenance"])
        except TwinError as error:
            named = checkpoint_registry.FILE.fullmatch(path.name)
            digest, own = named[1] if named else path.name, {"problem": str(error)}
        records = tuple(record for record in made if record.checkpoint == digest)
        found.append(CheckpointInfo(digest, digest == current, own, records))
    return tuple(found)


def _trainings(store: Path) -> tuple["LineageRecord", ...]:
    if not layout.all_ids(store):
        return ()
    from replay.store import checkpoint_lineage  # reads logs, which takes Arrow

    return checkpoint_lineage.records(store)
