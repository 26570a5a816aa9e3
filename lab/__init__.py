"""A real training job over an emulated wide-area network, small enough for one machine.

In come a scenario and the links of its window (`twin.traces.wan_trace`); out go measured step times and
moves beside those that the twin predicts. Every site is a network namespace with a TUN device
(`site_process.py`); a router in user space (`router.py`) carries their packets with the rate, delay and loss
of the trace (`link_schedule.py`); in each site torchrun trains one stage of a small GPT (`stage_worker.py`).
Time is scaled by one factor and bytes by another (`scale.py`). Start reading at `comparison.py`.
"""
