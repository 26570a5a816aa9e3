"""Engines: how a running job iterates under a plan and changing links.

In: a `Plan`, the network and the slowdown of domains. Out: completed iterations, by callback.
`kernel_engine.py` counts iterations at the exact rate of the kernel, `event_engine.py` runs every
micro-batch as events; `docs/internals/engines.md` compares them. Start with `engine.py`.
"""
