"""Parts of every reader: the reader contract, archives, CSV, JSON cells, rejects, `dataset.toml`.

Files and archive members come in as `Source`, settings as `DatasetOptions`; `RowBatch`es with a `Reject` for
each unusable row go out. Start at `reader.py`.
"""
