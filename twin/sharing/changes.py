"""Rule sets of changes: when a running job may be preempted, moved or resized, and what that costs.

A change of a running job is paid by a pause on the GPUs that it holds afterwards: its state goes to storage
and back, and its processes start again.
"""

from dataclasses import dataclass

import numpy as np

from ingest.core.names import chosen
from ingest.core.units import NS_PER_S
from twin.queue.jobs import Int

PPM = 1_000_000
"""Rates are whole millionths of the speed that a job has alone on the GPUs that it asked for."""
SIZES = (1, 2, 4, 8, 16, 32)
MURI_PAUSES_S: dict[str, tuple[int, ...]] = {
    "vgg16": (7, 7, 8, 9, 9, 10), "vgg19": (7, 7, 8, 9, 10, 10), "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8), "bert": (10,) * 6, "gpt2": (10,) * 6,
    "a2c": (38, 39, 39, 46, 46, 46), "dqn": (5, 5, 6, 6, 8, 8),
}  # fmt: skip
"""Restart of a model on 1, 2, 4, 8, 16, 32 GPUs as measured by Zhao et al. (Muri, SIGCOMM 2022); a size
between two counts as the larger one, one beyond 32 as 32."""
UNKNOWN_PAUSE_S = 30
"""Restart of a job whose model is not among them."""


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """Rules on when running jobs are changed, and what it costs.

    costs: a resumed, moved or resized job pauses for its restart.
    amortises: a running job is left as it is until it has run this many times its pause since it began or was
        changed, and when its predicted rest is no longer than its pause; 0: whenever the scheduler says so.
    charges_events: every running job that does not end loses its pause at every event, changed or not, after
        the fact (Muri's simulator).
    stretch_ppm: run times of a log are multiplied by it.
    places_anew: places are chosen anew in every pass; running jobs do not keep theirs.
    counts: Tiresias takes GPUs by their number, wherever they are.
    most_preemptions: a job that was preempted so often is not preempted again; None: no bound.
    """

    name: str
    summary: str
    costs: bool = True
    amortises: int = 0
    charges_events: bool = False
    stretch_ppm: int = PPM
    places_anew: bool = False
    counts: bool = False
    most_preemptions: int | None = None


STEADY = ChangeRules(
    "steady",
    "a change pauses its job, is made only where it pays, and no job is preempted more than 20 times",
    amortises=10,
    most_preemptions=20,
)
FREE = ChangeRules(
    "free", "changes cost nothing and are made at once: a bound, as no cluster does it", costs=False
)
PAID = ChangeRules(
    "paid", "a change pauses its job and is made whenever the scheduler says so, without a bound"
)
MURI = ChangeRules(
    "muri",
    "as Muri's simulator, SIGCOMM 2022: every running job loses its restart at every event",
    costs=False,
    charges_events=True,
    stretch_ppm=1_015_000,
    places_anew=True,
    counts=True,
)
CHANGES = {rules.name: rules for rules in (STEADY, FREE, PAID, MURI)}
"""Rule sets by name; the first one is the default."""


def change_rules(name: str) -> ChangeRules:
    """Returns the rule set of that name.

    Raises:
        UsageError: there is none.
    """
    return chosen(CHANGES, name, "changes")


def pauses_ns(models: list[str | None], gpus: Int) -> Int:
    """Returns the restart of each job, nanoseconds (n,), by its model and the GPUs that it asks for."""
    places = np.minimum(np.searchsorted(SIZES, gpus), len(SIZES) - 1)
    seconds = [
        MURI_PAUSES_S[model][place] if model in MURI_PAUSES_S else UNKNOWN_PAUSE_S
        for model, place in zip(models, places.tolist(), strict=True)
    ]
    return np.array(seconds, np.int64) * NS_PER_S
