"""Arrow schemas of the canonical tables: one row is one observation, units are in the names."""

import pyarrow as pa

TS = pa.timestamp("ns", tz="UTC")

_ORIGIN = [
    pa.field("dataset", pa.string(), nullable=False),
    pa.field("source_file", pa.string(), nullable=False),
    pa.field("source_row", pa.int64(), nullable=False),
]


def _table(*fields: tuple[str, pa.DataType] | tuple[str, pa.DataType, bool]) -> pa.Schema:
    named = [pa.field(f[0], f[1], nullable=len(f) < 3) for f in fields]
    return pa.schema(_ORIGIN + named)


REQUIRED = False

LINK_SAMPLES = _table(
    ("ts", TS, REQUIRED),
    ("src", pa.string(), REQUIRED),
    ("dst", pa.string(), REQUIRED),
    ("bandwidth_bps", pa.float64()),
    ("rtt_s", pa.float64()),
    ("loss", pa.float64()),
    ("retransmits", pa.int64()),
    ("streams", pa.int32()),
    ("kind", pa.string()),  # tcp, available, load, capacity, ping
    ("duration_s", pa.float64()),
)
GPU_SAMPLES = _table(
    ("ts", TS, REQUIRED),
    ("host", pa.string()),
    ("gpu", pa.string()),
    ("gpu_model", pa.string()),
    ("util", pa.float64()),
    ("sm_active", pa.float64()),
    ("tensor_active", pa.float64()),
    ("dram_active", pa.float64()),
    ("mem_used_bytes", pa.int64()),
    ("mem_total_bytes", pa.int64()),
    ("power_w", pa.float64()),
    ("temp_c", pa.float64()),
    ("sm_clock_mhz", pa.float64()),
    ("nvlink_tx_bytes_s", pa.float64()),
    ("nvlink_rx_bytes_s", pa.float64()),
    ("pcie_tx_bytes_s", pa.float64()),
    ("pcie_rx_bytes_s", pa.float64()),
    ("energy_j", pa.float64()),
)
HOST_SAMPLES = _table(
    ("ts", TS, REQUIRED),
    ("host", pa.string()),
    ("power_w", pa.float64()),
    ("net_tx_bytes_s", pa.float64()),
    ("net_rx_bytes_s", pa.float64()),
)
JOBS = _table(
    ("job_id", pa.string(), REQUIRED),
    ("submit_ts", TS, REQUIRED),
    ("start_ts", TS),
    ("end_ts", TS),
    ("gpus", pa.int32()),
    ("user", pa.string()),
    ("status", pa.string()),
    ("model", pa.string()),
    ("priority", pa.string()),
    ("duration_s", pa.float64()),  # measured run time where start and end are unknown
)
FAULTS = _table(("ts", TS, REQUIRED), ("host", pa.string()), ("kind", pa.string()), ("repaired_ts", TS))
AVAILABILITY = _table(("ts", TS, REQUIRED), ("domain", pa.string()), ("gpus_available", pa.int32()))
LAYER_PROFILES = _table(
    ("model", pa.string()),
    ("gpu_model", pa.string()),
    ("tp", pa.int32()),
    ("micro_batch", pa.int32()),
    ("layer", pa.string()),
    ("forward_s", pa.float64()),
    ("backward_s", pa.float64()),
    ("update_s", pa.float64()),
    ("param_bytes", pa.int64()),
    ("activation_bytes", pa.int64()),
)
COLLECTIVE_PROFILES = _table(
    ("op", pa.string()),
    ("gpu_model", pa.string()),
    ("nodes", pa.int32()),
    ("ranks", pa.int32()),
    ("bytes", pa.int64()),
    ("time_s", pa.float64()),
)
STEP_TIMES = _table(
    ("job", pa.string()), ("worker", pa.string()), ("step", pa.int64()), ("time_s", pa.float64())
)
PRICES = _table(
    ("src", pa.string()), ("dst", pa.string()), ("usd_per_gb", pa.float64()), ("valid_from", TS)
)
REJECTS = _table(
    ("column", pa.string()),
    ("raw", pa.string()),
    ("reason", pa.string(), REQUIRED),
    ("ingest_id", pa.string(), REQUIRED),
)

TABLES: dict[str, pa.Schema] = {
    "link_samples": LINK_SAMPLES,
    "gpu_samples": GPU_SAMPLES,
    "host_samples": HOST_SAMPLES,
    "jobs": JOBS,
    "faults": FAULTS,
    "availability": AVAILABILITY,
    "layer_profiles": LAYER_PROFILES,
    "collective_profiles": COLLECTIVE_PROFILES,
    "step_times": STEP_TIMES,
    "prices": PRICES,
    "rejects": REJECTS,
}
TIME_COLUMN = {"jobs": "submit_ts", "prices": "valid_from"}
"""Column that orders a table in time where it is not `ts`."""
