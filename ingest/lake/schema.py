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

LINK_KINDS = ("tcp", "available", "udp", "load", "capacity", "ping")
"""Kinds of link samples: throughput of `streams` connections, what a transfer would get over any number
of them, what came of datagrams sent at a chosen rate, offered load, line rate, round trips."""

SITES = ("src", "dst", "domain", "host", "site")
"""Columns that hold names of sites, which a data set can give other names."""

LINK_SAMPLES = _table(
    ("ts", TS, REQUIRED),
    ("src", pa.string(), REQUIRED),
    ("dst", pa.string(), REQUIRED),
    ("bandwidth_bps", pa.float64()),
    ("rtt_s", pa.float64()),
    ("loss", pa.float64()),
    ("retransmits", pa.int64()),
    ("streams", pa.int32()),
    ("kind", pa.string()),  # one of LINK_KINDS; without one as tcp
    ("duration_s", pa.float64()),
    ("one_way_s", pa.float64()),  # delay of one direction; no half of a round trip
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
    ("gpus_requested", pa.int32()),  # where it differs from those that were held
    ("estimate_s", pa.float64()),  # run time that the user asked for
    ("deadline_ts", TS),
    ("steps", pa.int64()),  # training iterations of the whole job
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
    ("variant", pa.string()),  # which of several ways the same layer was measured
    ("seq", pa.int32()),  # tokens of a sequence, where the file says
    ("clock_mhz", pa.float64()),  # fixed clock during the measurement
    ("energy_j", pa.float64()),  # energy of what this row times
    ("forward_backward_s", pa.float64()),  # where only the sum is known
    ("states_bytes", pa.int64()),  # weights, gradients and optimiser states together
    ("peak_bytes", pa.int64()),  # most memory while it ran
)
COLLECTIVE_PROFILES = _table(
    ("op", pa.string()),
    ("gpu_model", pa.string()),
    ("nodes", pa.int32()),
    ("ranks", pa.int32()),
    ("bytes", pa.int64()),
    ("time_s", pa.float64()),
    ("variant", pa.string()),  # in place, adjacent or strided ranks, ...
    ("bandwidth_bps", pa.float64()),  # where the file gives a rate; bus bandwidth of a collective
)
STEP_TIMES = _table(
    ("job", pa.string()),
    ("worker", pa.string()),
    ("step", pa.int64()),
    ("time_s", pa.float64()),
    ("kind", pa.string()),  # step, block (mean over `steps`), smoothed, alone, shared, synchronisation, ...
    ("steps", pa.int32()),  # steps that the time is the mean of; null is one
    ("gpu_model", pa.string()),
    ("gpus", pa.int32()),
    ("energy_j", pa.float64()),
    ("peak_mem_bytes", pa.int64()),
    ("time_norm", pa.float64()),  # time without a unit, comparable inside its job only
    ("variation", pa.float64()),  # standard deviation over mean of the workers' times
)
OP_TIMES = _table(
    ("job", pa.string()),
    ("op", pa.string(), REQUIRED),  # forward-compute, backward-send, ...
    ("worker", pa.string()),
    ("dp_rank", pa.int32()),
    ("stage", pa.int32()),
    ("step", pa.int64()),
    ("micro_batch_id", pa.int32()),
    ("start_s", pa.float64()),  # since the step began
    ("time_s", pa.float64(), REQUIRED),
    ("energy_j", pa.float64()),
)
DISTRIBUTIONS = _table(
    ("name", pa.string(), REQUIRED),  # of the curve
    ("quantity", pa.string(), REQUIRED),  # what is distributed, unit in the name
    ("value", pa.float64(), REQUIRED),
    ("cumulative", pa.float64(), REQUIRED),  # share of the observations up to `value`, 0 to 1
)
PLACES = _table(
    ("site", pa.string(), REQUIRED),
    ("latitude_deg", pa.float64(), REQUIRED),  # north is positive
    ("longitude_deg", pa.float64(), REQUIRED),  # east is positive
)
PRICES = _table(("src", pa.string()), ("dst", pa.string()), ("usd_per_gb", pa.float64()), ("valid_from", TS))
CARBON_INTENSITY = _table(
    ("ts", TS, REQUIRED),  # when the value begins to hold
    ("zone", pa.string(), REQUIRED),  # of the grid
    ("direct_g_per_kwh", pa.float64()),  # grams of CO2 equivalent
    ("life_cycle_g_per_kwh", pa.float64()),
)
ELECTRICITY_PRICES = _table(
    ("ts", TS, REQUIRED),  # when the price begins to hold
    ("zone", pa.string(), REQUIRED),  # of the market
    ("usd_per_mwh", pa.float64(), REQUIRED),  # can be negative
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
    "op_times": OP_TIMES,
    "distributions": DISTRIBUTIONS,
    "places": PLACES,
    "prices": PRICES,
    "carbon_intensity": CARBON_INTENSITY,
    "electricity_prices": ELECTRICITY_PRICES,
    "rejects": REJECTS,
}
TIME_COLUMN = {"jobs": "submit_ts", "prices": "valid_from"}
"""Column that orders a table in time where it is not `ts`."""
