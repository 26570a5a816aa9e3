"""A store with a run, a lake and cached rows, beside files that no query may read or change."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingest.pipeline.ingest import ingest
from replay.sql.query import keep, query
from tests.support.formats import LINKS, lines, link
from tests.support.histories import write

SECRET = "canary-7f3a9c"


@dataclass(frozen=True, slots=True)
class Place:
    """Folder `root` with the store, a folder of secrets, and an empty one to work in."""

    root: Path
    store: Path
    secrets: Path
    segment: Path
    part: Path
    cached: Path

    def content(self) -> dict[str, str]:
        """Digest or kind of everything in it, by relative name."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        return found

    def words(self) -> dict[str, str]:
        """What hostile statements name, as it stands in SQL."""
        paths = {
            "segment": self.segment,
            "part": self.part,
            "cached": self.cached,
            "secret": self.secrets / "secret.csv",
            "secrets": self.secrets,
            "new": self.root / "work" / "new.csv",
            "store": self.store,
        }
        return {name: str(path).replace("'", "''") for name, path in paths.items()}


def made(root: Path, patch: pytest.MonkeyPatch) -> Place:
    """The place, with the process in its folder of work and the secret also in the environment."""
    patch.setattr("replay.sql.row_cache.LEAST_EVENTS", 100)
    store, secrets = root / "it's a store", root / "secrets"
    write(store / "runs" / "a")
    for folder in (secrets, root / "work"):
        folder.mkdir()
    (secrets / "links.csv").write_bytes(lines(LINKS, link("1"), link("2")))
    ingest([secrets / "links.csv"], store)
    (secrets / "secret.csv").write_text(f"word\n{SECRET}\n")
    (secrets / "secret.json").write_text(f'{{"word": "{SECRET}"}}\n')
    keep(store, "a")
    query(store, "FROM links")
    patch.chdir(root / "work")
    patch.setenv("CANARY", SECRET)
    (part,) = (store / "lake").rglob("*.parquet")
    (segment, *_) = (store / "runs").rglob("*.parquet")
    (cached,) = (store / "cache").rglob("links-*.parquet")
    return Place(root, store, secrets, segment, part, cached)
