"""Makes `examples/queue.swf`, a synthetic log of 400 jobs on 64 processors, and `examples/sessions.swf`, one
of 200 jobs whose users submit most of them after the job before: `python -m tests.support.queue_log`.

Jobs arrive by a Poisson process that is three times as fast by day as by night; run times are lognormal,
sizes powers of two, and users ask for a round time above the run time, as they do on real machines. In
sessions think times are lognormal, a few minutes long, and recorded submit times are those of a machine on
which nobody waits. Nothing in it was measured.
"""

from math import ceil
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parents[2] / "examples"
TARGET, SESSIONS = FOLDER / "queue.swf", FOLDER / "sessions.swf"
HEAD = """; Version: 2.2
; Computer: none: SYNTHETIC, made by tests/support/queue_log.py
; MaxJobs: 400
; MaxRecords: 400
; UnixStartTime: 1772323200
; MaxNodes: 64
; MaxProcs: 64
"""
ASKED_S = (600, 1800, 3600, 7200, 14400, 28800, 57600, 86400)


def sessions(users: int = 20, jobs: int = 10, seed: int = 7) -> str:
    """Returns the text of a log whose users work in sessions of a few jobs each."""
    random, rows = Random(seed), []
    for user in range(1, users + 1):
        time_s, before = random.uniform(0, 4 * 3600), None
        for _ in range(jobs):
            run_s, think_s = (round(random.lognormvariate(mean, 1)) + 1 for mean in (7.5, 5.5))
            size = 2 ** min(5, int(random.expovariate(0.5)))
            rows.append([time_s, user, run_s, size, before, think_s])
            goes_on = random.random() < 0.8
            before = rows[-1] if goes_on else None
            time_s += run_s + (random.uniform(2, 12) * 3600 if not goes_on else 0)
    for row in rows:  # a follower is recorded its think time after the end that the one before would have
        if row[4] is not None:
            row[0] = row[4][0] + row[4][2] + row[5]
    rows.sort(key=lambda row: row[0])
    lines = []
    for number, (submit_s, user, run_s, size, before, think_s) in enumerate(rows, 1):
        after = -1 if before is None else rows.index(before) + 1
        think = -1 if before is None else think_s
        asked_s = next(one for one in (*ASKED_S, 10**6) if one >= 2 * run_s)
        known = f"{number} {round(submit_s)} -1 {run_s} {size} -1 -1 {size} {asked_s} -1 1 {user}"
        lines.append(f"{known} -1 -1 1 -1 {after} {think}\n")
    return HEAD.replace("400", str(len(lines))) + "".join(lines)


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
    SESSIONS.write_text(sessions(), encoding="utf-8")
