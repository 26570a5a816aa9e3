"""The measurement store: table schemas, row rules, Parquet parts with manifests, SQL, summaries.

Row batches come in; committed parts (`LakeManifest`), DuckDB views and the `Summary` of `twin traces` go out.
A part is in the lake from the moment a manifest names it. Start at `schema.py`, then `lake.py`.
"""
