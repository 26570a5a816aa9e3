"""Schedulers that preempt, share and resize jobs, one short file each with its paper.

In: a `SharingView` at each event. Out: an `Allocation`. Each file says its tie-breaks and what the paper
leaves open. Start with `registry.py`, then `srtf.py`; the room twin/sharing plays them.
"""
