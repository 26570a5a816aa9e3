"""Wide tables made long: columns whose names say a link, a GPU or a quantity become rows.

The pattern of `[melt]` fits the names of those columns as a whole; its named groups are canonical columns.
With one canonical column for the cells (`value`) every filled cell is a row. With a group `measure` the
columns that differ in it alone stand in one row, each word of it as `values` says.
"""

import re
from collections.abc import Iterable, Sequence

import polars as pl
import pyarrow as pa

from ingest.core.config import suggestion
from ingest.core.errors import InputError
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.mapping_keys import MEASURE, Melt

Key = tuple[str, ...]
_ROW = "row of the file"


class Melting:
    """The way in which the columns of one wide table are melted.

    Raises:
        InputError: no column fits the pattern, or a word of `measure` has no canonical column.
    """

    def __init__(self, melt: Melt, names: Sequence[str], shown: str):
        pattern = re.compile(melt.columns)
        self.groups = [group for group in pattern.groupindex if group != MEASURE]
        self._wide: dict[Key, dict[str, str]] = {}
        self._fixed: list[str] = []
        for name in names:
            found = pattern.fullmatch(name)
            if found is None:
                self._fixed.append(name)
                continue
            said = found.groupdict()
            measure = _measure(melt, said, shown)
            if measure is not None:
                key = tuple(said[group] or "" for group in self.groups)
                self._wide.setdefault(key, {})[measure] = name
        if not self._wide:
            raise InputError(f"{shown}: [melt] no column fits {melt.columns!r}{suggestion('', names)}")
        self.measures = list(dict.fromkeys(m for columns in self._wide.values() for m in columns))

    @property
    def names(self) -> list[str]:
        """Names of the columns of the long table."""
        made = [*self.groups, *self.measures]
        return [*(name for name in self._fixed if name not in made), *made]

    def long(self, blocks: Iterable[Texts]) -> Iterable[Texts]:
        """Yields the blocks melted; a place of a row where all cells are blank is no row."""
        for block in blocks:
            yield self._melted(block)

    def _melted(self, block: Texts) -> Texts:
        wide = pl.DataFrame(
            {_ROW: pl.Series(block.rows)} | {n: pl.Series(c) for n, c in block.columns.items()}
        )
        fixed = [name for name in self._fixed if name in self.names]
        parts = [
            wide.select(
                _ROW,
                *fixed,
                *(pl.lit(word, pl.String).alias(group) for group, word in zip(self.groups, key, strict=True)),
                *(
                    (pl.col(columns[m]) if m in columns else pl.lit(None, pl.String)).cast(pl.String).alias(m)
                    for m in self.measures
                ),
            )
            for key, columns in self._wide.items()
        ]
        filled = pl.any_horizontal(pl.col(m).is_not_null() for m in self.measures)
        long = pl.concat(parts).filter(filled).sort(_ROW, maintain_order=True)
        columns = {name: long[name].to_arrow().cast(pa.string()) for name in self.names}
        rows = long[_ROW].to_arrow().cast(pa.int64())
        return Texts(columns, rows, len(long) + len(block.rejects), block.rejects)


def _measure(melt: Melt, said: dict[str, str], shown: str) -> str | None:
    """The canonical column of the cells of one column; None if its measure is not wanted."""
    if MEASURE in said:
        return melt.values.get(said[MEASURE] or "")
    if melt.value is None:
        raise InputError(f"{shown}: [melt] needs value, the canonical column of the cells")
    return melt.value


def melted_options(options: DatasetOptions, melting: Melting) -> DatasetOptions:
    """The mapping of the long table: what was melted has canonical names."""
    own = {name: name for name in (*melting.groups, *melting.measures)}
    return options.model_copy(update={"columns": {**options.columns, **own}})
