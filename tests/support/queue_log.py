"""Makes `examples/queue.swf`, a synthetic log of 400 jobs on 64 processors:
`python -m tests.support.queue_log`.

Jobs arrive by a Poisson process that is three times as fast by day as by night; run times are lognormal,
sizes powers of two, and users ask for a round time above the run time, as they do on real machines. Nothing
in it was measured.
"""

from math import ceil
from pathlib import Path
from random import Random

TARGET = Path(__file__).parents[2] / "examples" / "queue.swf"
HEAD = """; Version: 2.2
; Computer: none: SYNTHETIC, made by tests/support/queue_log.py
; MaxJobs: 400
; MaxRecords: 400
; UnixStartTime: 1772323200
; MaxNodes: 64
; MaxProcs: 64
"""
ASKED_S = (600, 1800, 3600, 7200, 14400, 28800, 57600, 86400)


def made(jobs: int = 400, seed: int = 7) -> str:
    """Returns the text of the log."""
    random = Random(seed)
    time_s, lines = 0.0, []
    for number in range(1, jobs + 1):
        by_day = 8 <= time_s / 3600 % 24 < 20
        time_s += random.expovariate(1 / (500 if by_day else 1500))
        run_s = max(1, min(80_000, round(random.lognormvariate(7.5, 1.6))))
        size = 2 ** min(6, int(random.expovariate(0.6)))
        wanted = run_s * random.uniform(1, 4)
        asked_s = next((one for one in ASKED_S if one >= wanted), ceil(wanted / 3600) * 3600)
        user = min(int(random.expovariate(0.3)), 11)
        known = f"{number} {round(time_s)} -1 {run_s} {size} -1 -1 {size} {asked_s} -1 1 {user}"
        lines.append(f"{known} -1 -1 1 -1 -1 -1\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    TARGET.write_text(made(), encoding="utf-8")
