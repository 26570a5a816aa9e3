"""Estimates of plans under given links: the cost models joined with the kernel.

In: `Plan`, `LinkState`. Out: `IterationEstimate`, `ResourceUse`, iteration times of one plan, of a plan
under many link states (`link_state_times.py`) and of many different plans (`mixed_shapes_kernel.py`); also
plan building and feasibility. Start with `estimator.py`.
"""
