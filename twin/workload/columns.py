"""Which processors, run time and estimate the rows of a log have, and which rows are no jobs.

Published results rest on these choices as much as on the scheduler; the rule set says which ones.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.readers.clusters.swf_log import SwfLog
from twin.queue.jobs import LATEST_NS, LONGEST_NS
from twin.queue.rules import QueueRules

LATEST_S, LONGEST_S = LATEST_NS / 1e9, LONGEST_NS / 1e9
Mask = NDArray[np.bool_]
Columns = tuple[NDArray[np.float64], ...]


def read_columns(log: SwfLog, size: int, rules: QueueRules) -> tuple[Columns, dict[str, Mask]]:
    """Returns submit, run, processors and estimate of each row, seconds, and masks of rows that are no jobs
    on a machine of that size, by reason."""
    columns, faults = (_with_estimates if rules.cuts else _with_long_runs)(log, size)
    submit, run, _, estimate = columns
    faults["submit time negative"] = submit < 0
    faults["time beyond all reason"] = (submit >= LATEST_S) | (np.maximum(run, estimate) >= LONGEST_S)
    return columns, faults


def _with_estimates(log: SwfLog, size: int) -> tuple[Columns, dict[str, Mask]]:
    """The columns by the "strong filter" behind Gaussier et al., SC 2015.

    Processors are those requested, or those allocated where only they are known. A log without any estimate
    has its run times for them.
    """
    held, asked = log.column("processors"), log.column("processors_requested")
    run, estimate = log.column("run_s"), log.column("estimate_s")
    if not (estimate > 0).any():
        estimate = run
    faults = {
        "more processors than the machine has": (held > size) | (asked > size),
        "no processors": (held <= 0) & (asked <= 0),
        "run time not positive": run <= 0,
        "estimate not positive": estimate <= 0,
    }
    return (log.column("submit_s"), run, np.where(asked > 0, asked, held), estimate), faults


def _with_long_runs(log: SwfLog, size: int) -> tuple[Columns, dict[str, Mask]]:
    """The same as RLScheduler (SC 2020) reads a log: the larger number of processors, a negative run time
    is 10 s, an unknown estimate is the run time; where that is unknown too, the estimate stays at -1 s."""
    run = log.column("run_s")
    width = np.maximum(log.column("processors"), log.column("processors_requested"))
    faults = {
        "run time zero": run == 0,
        "more processors than the machine has": width > size,
        "no processors": width <= 0,
    }
    estimate = np.where(log.column("estimate_s") == -1, run, log.column("estimate_s"))
    faults["estimate below -1"] = estimate < -1
    run = np.where(run < 0, 10.0, run)
    return (log.column("submit_s"), run, width, estimate), faults
