"""A day of a service, made in a minute or two: python -m benchmarks.service.day STORE

Writes the log of a run of `tri-7b` under the policy `static` as 24 h of telemetry would leave it, up to now:
a sample of every link in each telemetry period, steps of the job all the time, a decision a minute. Only the
clock is not the real one. `twin --store STORE serve -s tri-7b --dataset synthetic-tri -p static` goes on with
it, and `benchmarks.service.console` measures how long its page takes. The store needs `synthetic-tri`.
"""

import argparse
import time
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ingest.core.units import NS_PER_S
from service.session import session as sessions
from service.session.session import Session, SessionSettings
from twin.scenario import prepare as scenarios

DAY_S = 24 * 3600


class GivenClock:
    """Stands for `LiveClock`: time is what it was set to."""

    now_epoch_ns = 0

    def __init__(self, origin_epoch_ns: int, at_least_ns: int = 0) -> None:
        self._origin_ns, self._least_ns = origin_epoch_ns, at_least_ns

    def now_ns(self) -> int:
        """Returns the time of the run."""
        return max(self._least_ns, GivenClock.now_epoch_ns - self._origin_ns)


def made(store: Path, hours: float) -> Session:
    """Writes the run and returns its session, closed."""
    GivenClock.now_epoch_ns = time.time_ns() - int(hours * 3600 * NS_PER_S)
    vars(sessions).update(time=SimpleNamespace(time_ns=lambda: GivenClock.now_epoch_ns), LiveClock=GivenClock)
    setting = SessionSettings("static", "synthetic-tri")
    session = Session(store, scenarios.load("tri-7b"), setting)
    session.start()
    told(session, "plan", [{"kind": "plan", "state": "running", "plan": session.published.plan}])
    for number in range(int(hours * 3600 / session.setup.scenario.telemetry.period_s)):
        period(session, number)
    session.close()
    return session


def period(session: Session, number: int) -> None:
    """Passes a telemetry period: its steps, then a sample of every link."""
    wan, estimator = session.setup.wan, session.context.estimator
    period_ns = int(session.setup.scenario.telemetry.period_s * NS_PER_S)
    state = wan.at(wan.start_ns + number * period_ns % (wan.end_ns - wan.start_ns))
    plan = session.world.jobs[""].orders.in_force
    assert plan is not None
    estimate, end_ns = estimator.iteration(plan, state), GivenClock.now_epoch_ns + period_ns
    count = max(1, period_ns // estimate.iter_ns)
    items: list[dict[str, Any]] = []
    for k in range(count):
        at_ns = GivenClock.now_epoch_ns + (k + 1) * period_ns // count
        items.append({"kind": "step", "epoch_ns": at_ns, "step": number * 1000 + k,
                      "seconds": period_ns / count / NS_PER_S})  # fmt: skip
    names = enumerate(wan.names)
    for (i, src), (j, dst) in permutations(names, 2):
        items.append({"kind": "link", "epoch_ns": end_ns, "src": src, "dst": dst,
                      "bandwidth_bps": float(state.bandwidth_bps[i, j]),
                      "latency_s": float(state.latency_s[i, j])})  # fmt: skip
    GivenClock.now_epoch_ns = end_ns
    told(session, f"period {number}", items)


def told(session: Session, key: str, items: list[dict[str, Any]]) -> None:
    """Tells the session a batch, which must be accepted whole."""
    stamped = [{"epoch_ns": GivenClock.now_epoch_ns, **item} for item in items]
    answer = session.observe(session.reader.batch(key, "day", stamped)).result()
    assert not answer["refused"], answer["refused"][:3]


def main() -> None:
    """Makes the day and prints what it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--hours", type=float, default=DAY_S / 3600)
    given = parser.parse_args()
    began = time.perf_counter()
    session = made(given.store, given.hours)
    took_s, steps = time.perf_counter() - began, session.accounts.total.iterations
    print(
        f"{session.run_id}: {given.hours:g} h, {session.published.events:,} events,"
        f" {session.state.counts['decided']:,} decisions, {steps:,} steps, made in {took_s:.0f} s"
    )


if __name__ == "__main__":
    main()
