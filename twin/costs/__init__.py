"""Cost models, one a file: seconds, bytes or joules of stages, boundaries, migrations and replicas.

In: `Plan`, `Cluster`, `JobSpec`, `LinkState`. Out: `StageCosts` per stage, `BoundaryCosts` per boundary
(its terms in `boundary_terms.py`), `Migration`. Constants lie beside the profile that they come from. Start
with `stage_costs.py`.
"""
