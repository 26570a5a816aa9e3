"""Wide-area links in simulated time: their state, fair sharing, messages and bulk transfers.

In: a `WanTrace`, flows of jobs and transfers. Out: max-min fair rates, ends of messages
(`message_channels.py`) and of transfers (`bulk_transfers.py`), callbacks when links change
(`link_state.py`). Start with `flows.py`.
"""
