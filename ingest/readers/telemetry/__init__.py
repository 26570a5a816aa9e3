"""Readers of GPU and host telemetry: DCGM, nvidia-smi, Prometheus, MLPerf power logs, pods.

Logs and scrapes come in; rows of `gpu_samples` and `host_samples`, one for each GPU or host and instant, go
out. Start at `nvidia_smi.py`.
"""
