"""Plans as files of the tools that people train, schedule and simulate with.

In: a plan file or a run, a `PlannedJob`. Out: a folder of files that are ready to start, with a README. A
target is a class in `targets`, behind the contract of `contract.py`, and one line of `registry.py`; it names
the parts of a plan that it cannot express and the nearest that it can (`differences.py`).
"""
