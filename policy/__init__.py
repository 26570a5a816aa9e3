"""Policies: what is seen becomes a decision.

Rooms from the bottom up: `core` (contract, registry, objective) and `search` (the best plans under one link
state); `control` (look-ahead); `baselines` and `kit`; `planners` (published systems), `bound` (the
clairvoyant bound) and `hippo`. A `View` comes in, a `Decision` goes out. Start at `core/protocol.py`.
"""
