"""From paths to the lake: discovery of data sets, transactions, `--follow`, derived sets.

Paths come in; each file goes to its one reader, and its rows are committed whole or not at all. An
`IngestReport` goes out. Start at `ingest.py`.
"""
