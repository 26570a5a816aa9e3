"""Specification and status of a TrainingPlan as the API server sends them: typed, with ranges, and bounded.

The schema of the resource says the same, but a server may hold objects of an earlier schema, or have none. So
everything is checked here before anything is computed of it.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from ingest.core import config
from ingest.core.config import Message
from ingest.core.errors import InputError, UsageError
from ingest.core.ranges import Within
from twin.core.plan import Recompute, Schedule
from twin.settings.plan_document import MOST_DOMAINS, MOST_GPUS, GpuNumber, Layers, Warmup, plan_fault
from twin.settings.ranges import Chunks, Factor, Gpus, Samples, Seconds, Sequences, ZeroStage

Json = dict[str, Any]
MAX_PARTS = 100_000
"""Stages whose layers a specification lists."""

Text = Annotated[str, Field(min_length=1, max_length=200)]
Batch = Annotated[int, Within(1, 1_000_000, "the largest batches have some 100,000 sequences")]
Horizon = Annotated[float, Within(1, 3.2e9, "in seconds, up to a century")]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Camel(Message):
    model_config = ConfigDict(alias_generator=to_camel)


class ShareSpec(_Camel):
    """The part of one site, by its name."""

    domain: Text
    layers: Layers
    tensor_parallel: Gpus
    stages: Gpus
    gpus: Annotated[list[GpuNumber], Field(min_length=1, max_length=MOST_GPUS)]


class TrainingPlanSpec(_Camel):
    """`spec` of a TrainingPlan; `replay.export.targets.training_plan.schema` has the same fields."""

    model: Text
    global_batch: Batch
    shares: Annotated[list[ShareSpec], Field(min_length=1, max_length=MOST_DOMAINS)]
    data_parallel: Gpus
    micro_batch: Samples
    micro_batches: Sequences
    schedule: Schedule
    extra_warmup: Warmup
    chunks: Chunks
    recompute: Recompute
    zero: ZeroStage
    routes: Annotated[
        list[Annotated[list[Text], Field(min_length=3, max_length=MOST_DOMAINS)]],
        Field(max_length=MOST_DOMAINS**2),
    ]
    parts: Annotated[list[Json], Field(max_length=MAX_PARTS)] = Field(default_factory=list)  # for readers
    expected_iteration_seconds: Seconds | None = None
    image: Text | None = None
    queue: Text | None = None
    follow: Literal["never", "lost", "better"] = "lost"
    min_gain: Factor = 0.05
    pause_seconds: Seconds = 120.0
    horizon_seconds: Horizon = 3600.0


class PlanStatus(_Camel):
    """`status` of a TrainingPlan as the operator writes it."""

    model_config = ConfigDict(extra="ignore")

    revision: Number
    phase: Literal["Pending", "Running", "Moving", "Finished", "Failed"]
    message: str
    observed_generation: Number
    plan_digest: str
    model: Text | None = None
    global_batch: Batch | None = None
    plan: Json | None = None
    gpus: dict[str, Number] | None = None
    expected_iteration_seconds: Seconds | None = None
    conditions: list[Json] = Field(default_factory=list)


def checked_spec(spec: Any, name: str) -> TrainingPlanSpec:
    """Returns a specification in its types.

    Raises:
        InputError: it has none; the message names the field and what it may be.
    """
    if not isinstance(spec, dict):
        raise InputError(f"{name}: spec is no object")
    try:
        return config.parse(TrainingPlanSpec, spec, source=f"{name}: spec")
    except UsageError as error:
        raise InputError(str(error)) from error


def read_status(status: Any) -> PlanStatus | None:
    """Returns a status in its types; None: the operator has not written it, or it cannot be read."""
    try:
        found = PlanStatus.model_validate(status)
    except (ValidationError, RecursionError):
        return None
    return None if found.plan is not None and plan_fault(found.plan) else found


def known_revision(status: Any) -> int:
    """Return the revision in a status that cannot be read, so that no child's name is reused; 0: none."""
    revision = status.get("revision") if isinstance(status, dict) else None
    return revision if isinstance(revision, int) and 0 <= revision < 2**53 else 0
