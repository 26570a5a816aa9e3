"""Plans for a question instead of a run: which plan, how fast, how much, and what would change the answer.

In: a scenario and the recorded links of the lake. Out: a `PlanAnswer` with ranked plans and their figures, a
plan file that `twin replay --plan` follows, a picture. Start at `answer.py`; the order of work is
`record.py`, `candidates.py`, `ranking.py`, `figures.py`, `turning_points.py`.
"""
