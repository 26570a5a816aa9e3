"""Bodies of requests and answers, as OpenAPI shows them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ingest.core.config import Message

Json = dict[str, Any]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Reason = Annotated[str, Field(max_length=500)]
Tokens = Annotated[int, Field(ge=1, le=10**18)]


Gpus = Annotated[dict[Name, Annotated[int, Field(ge=0, le=10**6)]], Field(max_length=256)]
"""GPUs by domain."""
JobKeys = Annotated[Json, Field(max_length=64)]
"""Keys of `job` in a scenario that differ from its own."""


class Body(Message):
    """A request; unknown fields and values of another type are errors."""


class LinkSupposed(Body):
    """A link with a bandwidth that the question supposes."""

    src: Name
    dst: Name
    bandwidth_bps: Annotated[float, Field(ge=0, le=1e15)]


class DryRun(Body):
    """Question of `/v1/dry-run`; without fields: as things are now."""

    job: Annotated[str, Field(max_length=200)] = ""  # the one of several that is asked about
    links: Annotated[list[LinkSupposed], Field(max_length=4096)] = Field(default_factory=list)
    gpus: Gpus = Field(default_factory=dict)


class Admission(Body):
    """A job not submitted yet."""

    model: Name
    job: Annotated[Json, Field(max_length=64)] = Field(
        default_factory=dict
    )  # keys of `job` in a scenario that differ from its own
    tokens: Tokens | None = None  # that it is to train
    present_job_tokens_left: Tokens | None = None
    gpus: Gpus = Field(default_factory=dict)
    plan: Json | None = None  # one for the job, whose iteration is timed beside


class JobAsked(Body):
    """A job of a queue."""

    model: Name
    job: JobKeys = Field(default_factory=dict)
    tokens: Tokens | None = None  # that it is to train; without, it does not end


class Queue(Body):
    """Jobs that would be submitted, in this order."""

    jobs: Annotated[list[JobAsked], Field(min_length=1, max_length=12)]
    present_job_tokens_left: Tokens | None = None


class Mode(Body):
    """Another mode."""

    mode: Literal["shadow", "active", "hold"]
    reason: Reason = ""


class RollbackBody(Body):
    """A reason for which the plan before is ordered, or the run renewed."""

    reason: Reason = ""
    job: Annotated[str, Field(max_length=200)] = ""  # the one of several that goes back


class RefusedItem(BaseModel):
    """An item that was not accepted."""

    item: int
    reason: str


class Accepted(BaseModel):
    """Answer to a batch, durable when it is sent; `duplicate`: the batch was here before."""

    key: str
    accepted: int
    refused: list[RefusedItem]
    duplicate: bool


class JobChanges(BaseModel):
    """Answer to changes of the queue, durable when it is sent; `unchanged`: they were made before."""

    accepted: int
    unchanged: int
    refused: list[RefusedItem]


class JobLine(BaseModel):
    """A job of the queue; the last three fields are of jobs that wait: null where nobody knows."""

    id: str
    state: Literal["waiting", "placed", "running", "ended", "cancelled"]  # placed: it has not said it runs
    gpus: int
    estimate_s: float | None
    user: str
    submitted_at: float
    started_at: float | None
    closed_at: float | None
    on: dict[str, int] | None
    starts_in_s: float | None
    domain: str | None
    reason: str


class JobList(BaseModel):
    """The queue: `at` and times of jobs are seconds since the epoch."""

    at: float
    scheduler: str
    free_gpus: dict[str, int]
    jobs: list[JobLine]


class OrderBody(BaseModel):
    """An order that waits for the job; without a plan: to stop and give all GPUs back."""

    number: int
    plan: Json | None
    reason: str


class OrderWaiting(BaseModel):
    """Answer to the hook; null: nothing is ordered."""

    order: OrderBody | None


class Current(BaseModel):
    """The last decision, and the plan in force."""

    run: str
    mode: str
    at: float
    decision: Json | None
    plan: Json | None
    virtual: bool
    order: OrderBody | None
    obstacle: str | None


class Made(BaseModel):
    """Answer to a request for a decision."""

    made: bool
    decision: Json | None
    obstacle: str | None


class ModeNow(BaseModel):
    """Mode, the order that waits, and the plan in force."""

    mode: str
    order: OrderBody | None
    plan: Json | None


class Renewed(BaseModel):
    """The run that has ended, and the one that has taken its place."""

    ended: str
    run: str


class ErrorBody(BaseModel):
    """Every failure."""

    schema_: Annotated[str, Field(alias="schema")]
    error: str
    message: str
