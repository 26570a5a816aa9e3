"""Rule sets: what published simulators leave to themselves, as data of one kernel."""

from dataclasses import dataclass

from ingest.core.names import chosen


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The order of events of one instant, and the rules of backfilling, of a simulator.

    cuts: a run longer than its estimate ends at its estimate.
    submissions_first: at equal times submissions come before terminations; terminations in the order in which
        the jobs were started.
    passes_each_event: a scheduling pass after each single event, not after all events of an instant.
    frees_predicted: a job whose predicted end has come counts as free, even if its termination is still to
        come at the same instant.
    commits: the job chosen to start next keeps its turn, whatever arrives while it waits, and its reservation
        is computed once.
    spares: a backfilled job may run past the reservation on processors that the reserved job leaves (the
        extra processors of EASY).
    strict: a backfilled job ends before the reservation, not at it.
    backfills_by_submission: candidates are tried in order of submission, whatever the order of the queue.
    """

    name: str
    summary: str
    cuts: bool = True
    submissions_first: bool = False
    passes_each_event: bool = False
    frees_predicted: bool = False
    commits: bool = False
    spares: bool = True
    strict: bool = False
    backfills_by_submission: bool = False


PREDICTSIM = QueueRules(
    "predictsim",
    "as the simulator behind Gaussier et al., SC 2015: submissions first, a pass after each event",
    submissions_first=True,
    passes_each_event=True,
    frees_predicted=True,
)
INSTANT = QueueRules("instant", "all events of an instant, terminations first, then one pass")
RLSCHEDULER = QueueRules(
    "rlscheduler",
    "as RLScheduler, SC 2020: runs are not cut, the chosen job keeps its turn, no extra processors",
    cuts=False,
    submissions_first=True,
    passes_each_event=True,
    commits=True,
    spares=False,
    strict=True,
    backfills_by_submission=True,
)
RULES = {rules.name: rules for rules in (PREDICTSIM, INSTANT, RLSCHEDULER)}
"""Rule sets by name; the first one is the default."""


def rule_set(name: str) -> QueueRules:
    """Returns the rule set of that name.

    Raises:
        UsageError: there is none.
    """
    return chosen(RULES, name, "rules")
