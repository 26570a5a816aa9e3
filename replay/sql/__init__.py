"""SQL over event logs and the lake, answered by DuckDB from committed files.

Comes in: a SELECT. Goes out: an Arrow table, or its rows as text, JSON, CSV, Parquet or Arrow bytes. The
views are defined in `event_views.py`, `run_views.py` and `bench_views.py`; `row_cache.py` keeps rows of
large runs. What a query may contain is in `statement.py`, what it can reach in `sandbox.py`, how rows look in
`formats.py`. Start at `query.py`.
"""
