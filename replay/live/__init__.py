"""A run or a training while it goes on: its state, and that state as text for Prometheus.

Comes in: the events of a run as they are logged, or the updates of a training. Goes out: frozen snapshots,
which a terminal draws and `metrics_server.py` serves. Nothing here touches the run. Start at `run_state.py`.
"""
