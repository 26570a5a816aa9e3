"""One cluster and job as arrays: what may be chosen and what it costs.

In: an `Estimator` and the GPUs alive, or a `View`. Out: `PlanningTables`, exact masks of the legal steps,
times and migration costs of many plans at once, and the `Observation` that the networks read. Start at
`planning_tables.py`.
"""
