"""Tables of strangers under a mapping: a CSV, Parquet or JSON file comes in, canonical rows go out.

`text_rows.py` gives the rows of a file as text columns, `melting.py` and `time_axis.py` turn them,
`column_mapping.py` says what each column becomes, `plausible.py` refuses what a wrong mapping would store.
What nobody mapped is described by `sniffing.py`, `nearest.py` and `drafting.py`. Start at `text_rows.py`.
"""
