"""Values that all floors exchange, and the simulation clock.

In: nothing of the other rooms. Out: cluster and link state (`domain.py`), job and model (`job.py`,
`transformer.py`), plan (`plan.py`, `placement.py`, `layer_split.py`), input of a decision (`view.py`),
facts of the world (`facts.py`), order of events (`clock.py`), seeded generators (`seeds.py`). Start with
`plan.py`.
"""
