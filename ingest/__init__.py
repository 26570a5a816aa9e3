"""Measurement files become rows of canonical tables in a Parquet lake.

Rooms from the bottom up: `core` (errors, units, configuration, durable files: for all floors), `lake`,
`parsing`, `readers`, `public`, `pipeline`. Files come in, committed parts with a manifest and an
`IngestReport` go out. Start at `pipeline/ingest.py`.
"""
