"""A decision service without its network: a live run that is fed by observations.

Comes in: batches of observations, requests, changes of mode. Goes out: what was accepted, decisions, orders,
all of it durable in the event log before it is answered. Start at `session.py`; `observation.py` checks what
an item means by itself, `intake.py` whether it comes in order.
"""
