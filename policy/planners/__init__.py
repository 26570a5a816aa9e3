"""Published planning systems, one file each, re-implemented on the cost model of the twin.

In: a `View` at each trigger. Out: a `Decision`. Each file states its source, the algorithm and what was
adapted to the plans of the twin. Classes named `...Native` choose by the objective of their paper, the others
by the twin's estimate. Start at `megatron.py`, the shortest, and `policy.kit.planner_base`, the base class.
"""
