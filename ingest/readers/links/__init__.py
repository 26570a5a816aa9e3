"""Readers of bandwidth, latency, topology, offered traffic and egress prices between sites.

Outputs of iperf3, ping and fping, archives of measurement projects and published matrices come in; rows of
`link_samples` and `prices` go out. Start at `iperf3.py`.
"""
