"""Wide tables, with a column for each destination or step, turned into long ones."""

from collections.abc import Sequence

import pyarrow as pa

from ingest.parsing.csv_blocks import Texts


def unpivoted(texts: Texts, header: Sequence[str], names: tuple[str, str, str]) -> Texts:
    """Returns a record for each filled cell behind the first column, line by line.

    Its columns are called `names`: the line's first cell, the heading of the cell, the cell.
    """
    import polars as pl

    cells = {f"cell {name}": pl.Series(texts.columns[name]) for name in header[1:]}
    wide = pl.DataFrame({"row": pl.Series(texts.rows), "line": pl.Series(texts.columns[header[0]]), **cells})
    long = (
        wide.unpivot(on=list(cells), index=["row", "line"])
        .drop_nulls("value")
        .sort("row", maintain_order=True)
        .with_columns(pl.col("variable").str.strip_prefix("cell "))
    )
    parts = (long[name].to_arrow().cast(pa.string()) for name in ("line", "variable", "value"))
    columns = dict(zip(names, parts, strict=True))
    return Texts(columns, long["row"].to_arrow(), len(long) + len(texts.rejects), texts.rejects)
