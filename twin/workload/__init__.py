"""From the rows of a log to the jobs that are played.

In: a `SwfLog` as read. Out: `LogJobs`, with the rows that are no jobs, each with its reason. `columns.py`
says which processors, run time and estimate a row has, `preceding.py` which jobs are submitted by the end of
another one, `shaping.py` makes a log longer, thinner or busier. Start with `selection.py`.
"""
