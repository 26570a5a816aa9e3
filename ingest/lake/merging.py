"""Joins small commits of a data set, of which a scrape or a followed file makes one a minute.

Commits have tiers by their weight, each `FAN_IN` times the one before; that many of one tier become one. So a
row is written again at most once a tier, and few commits stay small. Sources keep their entries and rows
their order of time: the digest of the data set is the same. The new manifest replaces the old ones in one
step, as an ingest of a changed file does: readers see all rows once, before it or after it. The old files
stay for some minutes, for those that have begun to read them.
"""

from collections import defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ingest.core.errors import LockedError
from ingest.lake import lake, stored_parts
from ingest.lake.manifests import LakeManifest, folder_of
from ingest.lake.part_writer import PartWriter

FAN_IN = 8
LARGE = 1 << 15
"""Weight from which a commit stays as it is."""
SOURCE_ROWS = 32
"""Rows that weigh as much as a source: its entry in the manifest is written again, too."""


def merge_small(store: Path, dataset: str) -> int:
    """Joins commits of a data set where enough of one tier are there; returns how many became others.

    Another writer is no error: the next call finds them again.

    Raises:
        DamageError: a commit is not what was written; nothing was joined.
    """
    joined = 0
    if _groups(store, dataset):
        with suppress(LockedError), lake.writing(store):
            lake.clean(store)
            while groups := _groups(store, dataset):
                for group in groups:
                    _join(store, dataset, group)
                    joined += len(group)
    return joined


def weight(manifest: LakeManifest) -> int:
    """Returns what it takes to write a commit again, in rows."""
    return max(sum(part.rows for part in manifest.parts), SOURCE_ROWS * len(manifest.sources), 1)


def _groups(store: Path, dataset: str) -> list[list[LakeManifest]]:
    """Commits that are to become one: of one tier, and under the same options."""
    tiers: dict[tuple[int, str], list[LakeManifest]] = defaultdict(list)
    for manifest in lake.live(store):
        heavy = weight(manifest)
        if manifest.dataset == dataset and heavy < LARGE:
            tiers[_tier(heavy), str(sorted(_stated(manifest).items()))].append(manifest)
    return [group[:FAN_IN] for _, group in sorted(tiers.items()) if len(group) >= FAN_IN]


def _tier(heavy: int) -> int:
    tier = 0
    while heavy >= FAN_IN:
        heavy, tier = heavy // FAN_IN, tier + 1
    return tier


def _stated(manifest: LakeManifest) -> dict[str, Any]:
    return {name: value for name, value in manifest.meta.items() if name != "assumptions"}


def _join(store: Path, dataset: str, group: list[LakeManifest]) -> None:
    """Commits one manifest in place of those of a group."""
    writer = PartWriter(store, dataset)
    try:
        for table, rows in sorted(_rows(store, group).items()):
            writer.write(table, partial(pa.concat_tables, rows, promote_options="default"))
        parts = writer.finish()
    except BaseException:
        writer.give_up()
        raise
    assumptions = sorted({text for one in group for text in one.meta.get("assumptions", ())})
    sources = sorted((entry for one in group for entry in one.sources), key=lambda entry: entry.file)
    # What they replaced in their turn must not come back, whatever a clean-up takes away first.
    older = {old for one in group for old in one.replaces if (folder_of(store) / f"{old}.json").exists()}
    replaces = sorted({*older, *(one.id for one in group)})
    meta = {**_stated(group[0]), "assumptions": assumptions}
    lake.commit(store, dataset, meta, parts, sources, replaces)


def _rows(store: Path, group: list[LakeManifest]) -> dict[str, list[pa.Table]]:
    """Returns the rows of each table, part by part."""
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    for manifest in group:
        for part in manifest.parts:
            tables[part.table].append(stored_parts.table(store, manifest, part))
    return tables
