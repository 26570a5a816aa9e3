"""One module for each file format; readers of other distributions join by entry points.

`registry.py` lists them and finds the one reader of a file; `columns.py` reads any CSV or Parquet file with
canonical columns. A `Source` comes in, `RowBatch`es go out. Start at `registry.py`.
"""
