"""A plan as other programs send it: in a job's report, a question or a resource; every field is checked.

The log is read by `replay.store.decision_codec`, which takes what is stored. A plan that comes from outside
passes `received_plan` first: schedules and modes are words of the lists in `twin.core.plan`, numbers lie in
their ranges, and the whole is small enough to be computed.
"""

from typing import Annotated, Any

from pydantic import Field, model_validator

from ingest.core import config
from ingest.core.config import Message
from ingest.core.errors import UsageError
from ingest.core.ranges import Within
from twin.core.plan import Plan, PointToPoint, Recompute, Schedule, Share, Sync
from twin.settings.ranges import Chunks, Gpus, Samples, Sequences, ZeroStage

MOST_DOMAINS = 256
"""Shares of a plan, and sites on a route."""
MOST_GPUS = 200_000
"""GPUs of one share."""
MOST_OPERATIONS = 2_000_000
"""Stages times chunks times micro-batches: each is computed forwards and backwards."""

DomainNumber = Annotated[int, Within(0, MOST_DOMAINS - 1, "a cluster has at most that many sites")]
Layers = Annotated[int, Within(1, 100_000, "the deepest models have some 200 layers")]
GpuNumber = Annotated[int, Field(ge=0, le=999_999)]  # checked in C: a plan may have many thousands
Warmup = Annotated[int, Within(0, 10_000, "more warm-up than micro-batches has no effect")]
InnerSteps = Annotated[int, Within(1, 100_000, "local SGD takes some 500 steps between exchanges")]
SentBytes = Annotated[float, Within(0.01, 64, "a parameter has 4 bytes, or fewer when compressed")]


class ShareDocument(Message):
    """The part of one site."""

    domain: DomainNumber
    layers: Layers
    tp: Gpus
    pp: Gpus
    gpus: Annotated[list[GpuNumber], Field(min_length=1, max_length=MOST_GPUS)]


class SyncDocument(Message):
    """Synchronisation of replicas in different sites."""

    inner_steps: InnerSteps = 1
    bytes_per_parameter: SentBytes = 4.0


class PlanDocument(Message):
    """Fields of `twin.core.plan.Plan`, under the same names."""

    shares: Annotated[list[ShareDocument], Field(min_length=1, max_length=MOST_DOMAINS)]
    dp: Gpus
    micro_batch: Samples
    micro_batches: Sequences
    schedule: Schedule = "1f1b"
    extra_warmup: Warmup = 0
    p2p: PointToPoint = "blocking"
    recompute: Recompute = "full"
    zero: ZeroStage = 0
    routes: Annotated[
        list[Annotated[list[DomainNumber], Field(min_length=3, max_length=MOST_DOMAINS)]],
        Field(max_length=MOST_DOMAINS**2),
    ] = Field(default_factory=list)
    sync: SyncDocument | None = None
    chunks: Chunks = 1
    sequence_parallel: bool = False
    context_parallel: Gpus = 1
    ep: Gpus = 1

    @model_validator(mode="after")
    def _computable(self) -> "PlanDocument":
        stages = sum(share.pp for share in self.shares)
        if (operations := stages * self.chunks * self.micro_batches) > MOST_OPERATIONS:
            raise ValueError(
                f"{stages:,} stages x {self.chunks:,} chunks x {self.micro_batches:,} micro-batches are "
                f"{operations:,} operations; a plan has at most {MOST_OPERATIONS:,}"
            )
        self.plan()  # its own checks: fields that do not agree with each other
        return self

    def plan(self) -> Plan:
        """Returns the plan."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        shares = tuple(Share(one.domain, one.layers, one.tp, one.pp, tuple(one.gpus)) for one in self.shares)
        sync = None if self.sync is None else Sync(self.sync.inner_steps, self.sync.bytes_per_parameter)
        routes = tuple(tuple(route) for route in self.routes)
        return Plan(**{**fields, "shares": shares, "sync": sync, "routes": routes})


NEEDED = tuple(name for name, field in PlanDocument.model_fields.items() if field.is_required())


def received_plan(value: Any, *, source: str = "plan") -> Plan:
    """Returns the plan that another program has sent as JSON values; `source` begins each line of a fault.

    Raises:
        UsageError: it is none; the message names the field and what it may be.
    """
    if not isinstance(value, dict):
        raise UsageError(f"{source}: a JSON object is needed, with {', '.join(NEEDED)}")
    return config.parse(PlanDocument, value, source=source).plan()


def plan_fault(value: Any) -> str | None:
    """Returns what is wrong with a plan from outside, in one line; None: nothing is."""
    try:
        received_plan(value)
    except UsageError as error:
        return str(error).replace("\n", "; ")
    return None
