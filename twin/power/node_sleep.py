"""Power of nodes that sleep and wake, beside that of idle ones; exact, as all power is.

A node sleeps once it has had no job for the time of the rule, up to the start of the next job there or to
the end of the schedule. It wakes from that start on, while the job waits. A node that is asleep draws
`sleep_mw` a GPU in place of the idle power, one that wakes `wake_mw`.
"""

from dataclasses import dataclass

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.sleeping import SleepRule
from twin.power.site_power import MOST_W, MW_PER_W, of_runs
from twin.power.step_series import Int, StepSeries


@dataclass(frozen=True, slots=True)
class NodeSleep:
    """The rule of sleep, and the power of a GPU asleep and while its node wakes, its share of the node
    included, milliwatts; `wake_mw` None: as an idle one.

    Raises:
        UsageError: a power beyond all reason.
    """

    rule: SleepRule
    sleep_mw: int = 0
    wake_mw: int | None = None

    def __post_init__(self) -> None:
        if not all(0 <= one < MOST_W * MW_PER_W for one in (self.sleep_mw, self.wake_mw or 0)):
            raise UsageError("a GPU that sleeps, or wakes, draws 0 to 1e9 W")

    def to_json(self) -> dict[str, float | None]:
        """Returns seconds and watts by name; a power while waking of None is that of an idle GPU."""
        return {
            "after_s": self.rule.after_ns / NS_PER_S,
            "wake_s": self.rule.wake_ns / NS_PER_S,
            "sleep_w": self.sleep_mw / MW_PER_W,
            "wake_w": None if self.wake_mw is None else self.wake_mw / MW_PER_W,
        }

    def beyond_idle(self, done: NodeSchedule, idle_mw: Int) -> StepSeries:
        """Returns what sleep and waking add to the power of idle nodes, a GPU of which draws `idle_mw`
        (nodes,); negative where they save, milliwatts.

        Raises:
            UsageError: a GPU draws more asleep than idle.
        """
        if (idle_mw < self.sleep_mw).any():
            raise UsageError(
                f"a GPU draws {int(idle_mw.min()) / MW_PER_W:g} W idle, and {self.sleep_mw / MW_PER_W:g} W "
                "asleep: say less for --sleep-power"
            )
        begin_ns, end_ns = int(done.jobs.submit_ns.min()), int(done.end_ns.max())
        node, begins, ends = asleep(done, self.rule, begin_ns, end_ns)
        gpus = done.cluster.gpus[node]
        saved = of_runs(begins, ends, (self.sleep_mw - idle_mw[node]) * gpus, begin_ns, end_ns)
        if self.wake_mw is None or not self.rule.wake_ns:
            return saved
        woken = ends < end_ns
        wakes = ends[woken]
        spent = of_runs(
            wakes, wakes + self.rule.wake_ns, ((self.wake_mw - idle_mw[node]) * gpus)[woken], begin_ns, end_ns
        )
        at = np.union1d(saved.at_ns, spent.at_ns)
        return StepSeries(at, saved.at(at) + spent.at(at), end_ns)


def asleep(done: NodeSchedule, rule: SleepRule, begin_ns: int, end_ns: int) -> tuple[Int, Int, Int]:
    """Returns node, begin and end of every time in which a node sleeps; one that lasts to `end_ns` wakes for
    nobody."""
    width, rows = int(done.cluster.gpus.max()), list[tuple[int, int, int]]()
    job = np.repeat(np.arange(len(done.jobs)), np.diff(done.first))
    runs: list[list[tuple[int, int]]] = [[] for _ in range(len(done.cluster))]
    held = zip(
        (done.slots // width).tolist(), done.start_ns[job].tolist(), done.end_ns[job].tolist(), strict=True
    )
    for node, start, end in held:
        runs[node].append((start, end))
    for node, each in enumerate(runs):
        free_from = begin_ns
        for start, end in [*sorted(each), (end_ns, end_ns)]:
            if start - free_from >= rule.after_ns and free_from + rule.after_ns < end_ns:
                rows.append((node, free_from + rule.after_ns, start))
            free_from = max(free_from, end)
    found = np.array(rows, np.int64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]
