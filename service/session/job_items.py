"""What a client may send to the queue of a service: one typed model a kind of change.

`epoch_ns` is the time of the change, without it the service's own. What only the book knows (jobs by id, GPUs
of the domains) is checked by `service.session.job_book`.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from ingest.core.config import Message
from ingest.core.names import RULE, is_name
from ingest.core.ranges import Name
from ingest.core.terminal import clipped, shown
from service.session.observation_items import Quantity, Whole, first_fault

Json = dict[str, Any]
LONGEST_S = 100 * 86_400
"""Longest estimate: what the kernel over sites can simulate."""
MOST_GPUS = 1_000_000


class _Estimate(Quantity):
    def checked(self, value: Any) -> float:
        """Returns the number; every fault is said in the same words."""
        try:
            return Quantity.checked(self, value)
        except ValueError:
            raise ValueError(f": a number from 1 to {LONGEST_S:,} is needed") from None


def _identified(value: Any) -> Any:
    if not is_name(value):
        raise ValueError(f" {shown(clipped(str(value), 60))}: {RULE}")
    return value


def _user(value: Any) -> Any:
    return value if value == "" else _identified(value)


Estimate = Annotated[float, _Estimate(1, LONGEST_S)]
Gpus = Annotated[int, Whole(MOST_GPUS)]
JobId = Annotated[Name, BeforeValidator(_identified)]
User = Annotated[str, BeforeValidator(_user)]


class JobItem(Message):
    """Fields of every change."""

    id: JobId
    epoch_ns: Annotated[int, Whole(2**63 - 1)] | None = None


class SubmitItem(JobItem):
    """A job that waits from now on: GPUs of one domain, and the seconds that it is estimated to run."""

    kind: Literal["submit"]
    gpus: Gpus
    estimate_s: Estimate
    user: User = ""


class CancelItem(JobItem):
    """A job that waits no more."""

    kind: Literal["cancel"]


class StartItem(JobItem):
    """A job that the site has started, with its GPUs by domain."""

    kind: Literal["start"]
    gpus: Annotated[dict[str, Gpus], Field(max_length=256)]


class EndItem(JobItem):
    """A job that has ended."""

    kind: Literal["end"]


KINDS: dict[str, type[SubmitItem | CancelItem | StartItem | EndItem]] = {
    "submit": SubmitItem, "cancel": CancelItem, "start": StartItem, "end": EndItem,
}  # fmt: skip


def json_schema() -> Json:
    """Returns the JSON schema of a change."""
    return {"anyOf": [TypeAdapter(model).json_schema() for model in KINDS.values()]}


def fault_of(item: Json) -> str | None:
    """Returns what is wrong with a change of a known kind, whatever the book holds; None: nothing is."""
    try:
        KINDS[item["kind"]].model_validate(item)
    except ValidationError as error:
        return first_fault(error)
    return None
