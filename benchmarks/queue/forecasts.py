"""How often a waiting job starts inside the interval of its forecast, and what writing a run costs:

python -m benchmarks.queue.forecasts ../shared/jobs/swf/KTH-SP2-log.swf
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from ingest.core.units import NS_PER_S
from ingest.readers import job_logs
from policy.queue.registry import recipe
from replay.logqueue import logged_run, run_events, start_forecast
from twin.queue.rules import PREDICTSIM
from twin.queue.simulation import simulate
from twin.workload.selection import select

EARLIEST, SEED = 2_000, 1
"""Jobs before it have too little past."""


def main() -> None:
    """Prints the events of a run and their cost, then the share of forecasts that held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--processors", type=int)
    said = parser.parse_args()
    log = select(job_logs.read(said.log), PREDICTSIM, said.processors)
    done = simulate(log.jobs, log.processors, recipe(said.policy))
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        began, busy = time.perf_counter(), time.process_time()
        run_id = run_events.record(store, log, done, said.policy, prediction="estimate", rules=PREDICTSIM)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - busy
        print(f"{len(log.jobs):,} jobs written in {wall_s:.1f} s, {cpu_s:.1f} s of them processor time")
        run = logged_run.load(store, run_id)
    waiting = np.flatnonzero(done.start_ns > done.jobs.submit_ns)
    waiting = waiting[waiting > EARLIEST]
    chosen = np.random.default_rng(SEED).choice(waiting, said.jobs, replace=False)
    inside, errors_h = 0, []
    for job in chosen.tolist():
        one = start_forecast.forecast(run, job, int(done.jobs.submit_ns[job]))
        start_s = int(done.start_ns[job]) / NS_PER_S
        inside += one.low_s - 1e-6 <= start_s <= one.high_s + 1e-6
        errors_h.append(abs(one.median_s - start_s) / 3600)
    print(f"{inside} of {said.jobs} starts inside 90 % intervals, median error {np.median(errors_h):.2f} h")


if __name__ == "__main__":
    main()
