"""`twin estimate`: answers to tables of cases, and inverse problems.

In: CSV or YAML (`table_reader.py`, `column_definitions.py`), of which `resolve.py` makes one `Case` a row.
Out: `Answer`, `InverseSolution`, JSON `twin.estimate/1`. Start with `table_answers.py`.
"""
