"""Plans for a question instead of a run: which plan, how fast, how much.

In: a scenario and the recorded links of the lake. Out: a `PlanAnswer` with ranked plans and their figures,
and a plan file that `twin replay --plan` follows. Start at `answer.py`; the order of work is `record.py`,
`candidates.py`, `ranking.py`, `figures.py`.
"""
