"""Kinds of run: what a log tells of, and which commands it can answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ingest.core.errors import UsageError
from policy.core import registry
from replay.log.run_log import RunReader
from replay.store import run_index
from replay.store.run_header import QUEUE, Header, from_payload

Family = Literal["plans", "queue", "record"]
"""What the key figures of a run are of: `plans` that a policy decided on, the `queue` of a scheduler, or
none, in the `record` of a training, a retraining or a benchmark."""
DESCRIBED = {
    "what-if": "a what-if",
    "queue": "a queue run",
    "what-if of a queue": "a what-if of a queue run",
    "bench": "a run of a benchmark",
    "retraining": "an evaluation of a retraining",
    "service": "a run of a service",
    "log of bench": "the record of a benchmark",
    "log of train": "the record of a training",
    "log of retrain": "the record of a retraining",
}
"""A kind in a sentence, where it is not `a KIND`."""


@dataclass(frozen=True, slots=True)
class RunKind:
    """What a run is: its name in `twin runs`, and what its key figures are of."""

    name: str
    family: Family

    @property
    def described(self) -> str:
        """The kind in a sentence: `a replay`, `a queue run`."""
        return DESCRIBED.get(self.name, f"a {self.name}")


def kind_of(header: Header, made_by: str | None = None) -> RunKind:
    """Returns the kind of the run with this header; `made_by`: the command that made it as a part of
    something larger (`run_index.made_by`)."""
    if header.policy == QUEUE:
        return RunKind("queue" if header.branch is None else "what-if of a queue", "queue")
    if header.policy in registry.OPERATIONS:
        return RunKind(f"log of {header.policy}", "record")
    if header.branch is not None:
        return RunKind("what-if", "plans")
    if header.part_of is not None:
        return RunKind("retraining", "plans")
    if header.live is not None:
        return RunKind("service", "plans")
    return RunKind(made_by or "replay", "plans")


def require_plans(run_id: str, header: Header, purpose: str) -> None:
    """Refuses a run without plans of a policy; `purpose` is what needs them, as `a trace`.

    Raises:
        UsageError: the run is a queue, or the record of a training, a retraining or a benchmark.
    """
    kind = kind_of(header)
    if kind.family != "plans":
        raise UsageError(
            f"{run_id}: {kind.described}; {purpose} needs a run in which a policy decided on plans. "
            f"`twin report {run_id}` shows this one"
        )


def of_run(store: Path, run_id: str) -> RunKind:
    """Returns the kind of a run of the store.

    Raises:
        NotFoundError: the run was stopped before anything was stored. DamageError: its log is damaged.
    """
    header = from_payload(RunReader(run_index.folder(store, run_id)).header())
    return kind_of(header, run_index.made_by(store, run_id))


def require_one_family(store: Path, run_ids: Sequence[str], purpose: str) -> Family:
    """Returns what the figures of these runs are of; only runs of one family can be set side by side.

    Raises:
        UsageError: some are of plans and some of a queue, or one is a record without figures.
    """
    kinds = {run_id: of_run(store, run_id) for run_id in run_ids}
    families = {kind.family for kind in kinds.values()}
    if len(families) > 1 or families == {"record"}:
        what = ", ".join(f"{run_id} is {kind.described}" for run_id, kind in kinds.items())
        raise UsageError(
            f"{purpose} takes runs of policies, or runs of queues, and not both: {what}. `twin report RUN` "
            "shows each by itself"
        )
    (family,) = families
    return family
