"""Readers of job logs, node faults, GPU capacity and utilisation curves of clusters.

Published cluster traces come in; rows of `jobs`, `faults`, `availability` and `distributions` go out. Start
at `philly.py`.
"""
