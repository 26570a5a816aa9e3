"""Runs as experiments: what a run was made with and its figures over time, for tools that track trainings.

In: a run of the store. Out: files that MLflow, TensorBoard or Weights & Biases read. Start at
`tracked_run.py`; a tracker is a class in a file of its own and a line in `registry.py`.
"""
