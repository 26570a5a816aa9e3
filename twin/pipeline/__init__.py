"""Iteration time of a pipeline from the durations of its stages and boundaries, in integer nanoseconds.

In: `Pipeline`, P pipelines of one shape. Out: iteration times and the critical cycle (`critical_cycle.py`).
The kernel runs `round_recurrence.py` or `fixed_order_kernel.py`; `reference_simulator.py` is the slow event
simulation that tests hold them equal to; `docs/internals/engines.md` compares all forms. Start with
`kernel.py`.
"""
