"""Shared parts of the planners of `policy.planners`.

In: the `Estimator` and a `View`. Out: plans, cost tables and solutions for planners to choose from. Start at
`planner_base.py`, the base class; `even_stages.py` and `replica_plans.py` build plans, `stage_cost_tables.py`
tabulates stage costs, and `sailor_program.py`, `dtfm_costs.py` and `actor_critic.py` are parts of one planner
each.
"""
