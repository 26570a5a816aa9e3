"""The known format that a file comes nearest to, and what it lacks of it."""

from collections.abc import Iterable

from ingest.mapping.sniffing import Look

FORMATS: dict[str, tuple[str, ...]] = {
    "nvidia-smi": (
        "timestamp",
        "index",
        "name",
        "utilization.gpu [%]",
        "memory.used [MiB]",
        "power.draw [W]",
    ),
    "dcgm-wide": ("timestamp", "gpu", "gpu_model", "power_w", "temp_c", "gpu_util_pct", "sm_active"),
    "dcgm-long": ("timestamp", "metric_name", "gpu_id", "Hostname", "value"),
    "philly jobs": ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
    "openb jobs": ("name", "num_gpu", "gpu_milli", "creation_time", "scheduled_time", "deletion_time"),
    "helios jobs": (
        "job_id",
        "user",
        "gpu_num",
        "node_num",
        "state",
        "submit_time",
        "start_time",
        "end_time",
    ),
    "slurm (sacct -P)": ("JobID", "User", "State", "Submit", "Start", "End", "AllocTRES"),
    "scalars (TensorBoard CSV)": ("Wall time", "Step", "Value"),
    "scalars (W&B history)": ("_step", "_timestamp", "_runtime"),
    "intercloud": (
        "timestamp",
        "from_cloud",
        "from_region",
        "to_cloud",
        "to_region",
        "bitrate_Bps",
        "avgrtt",
    ),
    "nsys-stats": ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Name"),
    "iperf3": ("start", "intervals", "end"),
    "ripe-atlas": ("prb_id", "msm_id", "rcvd", "sent", "timestamp", "avg"),
    "esmond": ("ts", "val"),
    "pscheduler": ("test", "schedule", "result", "participants", "tool"),
    "slurm (--json)": ("jobs", "meta", "errors"),
    "kineto": ("traceEvents", "schemaVersion", "distributedInfo"),
    "link_samples": ("ts", "src", "dst", "bandwidth_bps", "rtt_s"),
    "gpu_samples": ("ts", "host", "gpu", "power_w", "util"),
    "jobs": ("job_id", "submit_ts", "start_ts", "end_ts", "gpus"),
}
"""Names by which readers know a file: columns of a CSV, keys of JSON; the last ones are canonical tables."""
_NAMED = {"esmond": "and those files are named SRC_DST_throughput.json, as its archives name their series"}
"""What else a reader knows a file by, beside keys."""
_ALIKE = 0.5
"""Share of a format's names that a file must have to be called near."""


def nearest(look: Look) -> str:
    """Returns a clause that names the nearest format and what the file lacks of it; empty if none is near."""
    given = {_plain(name) for name in look.names}
    best, lacking = "", []
    most = 0.0
    for name, needed in FORMATS.items():
        there = [key for key in needed if _plain(key) in given]
        share = len(there) / len(needed)
        if share > most:
            most, best, lacking = share, name, [key for key in needed if key not in there]
    if most < _ALIKE:
        return ""
    return (
        f"nearest is {best}, which also has {_listed(lacking)}"
        if lacking
        else f"its names are those of {best}{f', {_NAMED[best]}' if best in _NAMED else ''}"
    )


def _plain(name: str) -> str:
    return name.rpartition(".")[2].casefold() if name.startswith(".") else name.casefold()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
