"""What a client may send as an observation: a typed model a kind, whose JSON schema is on the OpenAPI page.

Numbers lie in ranges with which the service can compute: neither so small that a ratio of two of them is 0,
nor so large that a sum overflows. Other fields than those named here are passed over, since a job may send
figures of its own with its steps.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from ingest.core.config import Message
from ingest.core.terminal import clipped, shown

Json = dict[str, Any]
MOST_BPS = 1e15
MOST_S = 1e7
MOST_COUNT = 2**53
"""Largest bandwidth, duration and whole number that an observation may have."""
LEAST_BPS, LEAST_S = 1.0, 1e-9
"""Smallest bandwidth of a link that is up, and smallest latency and step; 0 has its own meaning."""
MOST_SENDS = 10_000
"""Sends in one step."""
MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class Quantity:
    """Annotation of a number from `low` to `high`; `zero` says what 0 means where that is allowed, too."""

    low: float
    high: float
    zero: str = ""

    def checked(self, value: Any) -> float:
        """Returns the number.

        Raises:
            ValueError: it is none, or outside the limits, which the message names.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(": a number is needed")
        least = 0 if self.zero else self.low
        if not least <= value <= self.high:  # false for NaN, too
            raise ValueError(f" {shown(value)}: outside {least:g} to {self.high:g}")
        if 0 < value < self.low:
            raise ValueError(
                f" {shown(value)}: outside {self.low:g} to {self.high:g}, and not 0 ({self.zero})"
            )
        return float(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Schema of the check alone."""
        return core_schema.no_info_plain_validator_function(self.checked)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        """JSON schema of the number with its range."""
        within = {"type": "number", "minimum": self.low, "maximum": self.high}
        return {"anyOf": [within, {"const": 0, "description": self.zero}]} if self.zero else within


@dataclass(frozen=True, slots=True)
class Whole:
    """Annotation of a whole number from 0 to `high`."""

    high: int

    def checked(self, value: Any) -> int:
        """Returns the number.

        Raises:
            ValueError: it is none, or outside the limits, which the message names.
        """
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(": a whole number is needed")
        if not 0 <= value <= self.high:
            raise ValueError(f" {shown(value)}: outside 0 to {self.high}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Schema of the check alone."""
        return core_schema.no_info_plain_validator_function(self.checked)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        """JSON schema of the number with its range."""
        return {"type": "integer", "minimum": 0, "maximum": self.high}


Epoch = Annotated[int, Whole(2**63 - 1)]
Count = Annotated[int, Whole(MOST_COUNT)]
Bandwidth = Annotated[float, Quantity(LEAST_BPS, MOST_BPS, "the link is down")]
Seconds = Annotated[float, Quantity(LEAST_S, MOST_S, "none, or not measured")]
Length = Annotated[float, Quantity(LEAST_S, MOST_S)]
Slowdown = Annotated[float, Quantity(0.01, 1000)]
Send = tuple[str, str, Count, Seconds]


class ObservationItem(Message):
    """Fields of every observation; `job` is "" where the scenario has one."""

    model_config = ConfigDict(extra="ignore")

    epoch_ns: Epoch  # UTC
    job: str = ""


class LinkItem(ObservationItem):
    """A measured link."""

    kind: Literal["link"]
    src: str
    dst: str
    bandwidth_bps: Bandwidth
    latency_s: Seconds | None = None


class StepItem(ObservationItem):
    """A step that ended at `epoch_ns`; a send is [source, target, bytes, seconds]."""

    kind: Literal["step"]
    step: Count
    seconds: Length
    sent: Annotated[list[Annotated[Send, Field(strict=False)]], Field(max_length=MOST_SENDS)] = Field(
        default_factory=list
    )
    compute_s: dict[str, Seconds] = Field(default_factory=dict)
    memory_peak_bytes: Count | None = None


class DomainItem(ObservationItem):
    """GPUs of a domain that are alive, its computing time over nominal, or both."""

    kind: Literal["domain"]
    domain: str
    gpus: Count | None = None
    slowdown: Slowdown | None = None


class PlanItem(ObservationItem):
    """What a job says of plans: that it runs one, or what became of an order."""

    kind: Literal["plan"]
    state: Literal["running", "applied", "refused"]
    plan: Json | None = None  # of `running`: `ItemReader` holds it against the cluster
    order: Count | None = None  # of the others
    pause_s: Seconds | None = None
    reason: str = ""


KINDS: dict[str, type[LinkItem | StepItem | DomainItem | PlanItem]] = {
    "link": LinkItem, "step": StepItem, "domain": DomainItem, "plan": PlanItem,
}  # fmt: skip


def json_schema() -> Json:
    """Returns the JSON schema of an observation."""
    return {"anyOf": [TypeAdapter(model).json_schema() for model in KINDS.values()]}


def first_fault(error: ValidationError) -> str:
    """Returns the first fault of an item in one line: the field, its value, and what it may be."""
    fault = error.errors(include_url=False, include_context=False)[0]
    name = clipped(".".join(str(part) for part in fault["loc"]), 60)
    said = fault["msg"]
    if fault["loc"][0] == "sent" and len(fault["loc"]) < 4 and fault["type"] != "value_error":
        return f"sent: a list of at most {MOST_SENDS} sends, each [source, target, bytes, seconds]"
    match fault["type"]:
        case "value_error":
            said = said.removeprefix("Value error, ")
            return name + (said if said[:1] in " :" else f": {said}")
        case "extra_forbidden":
            return f"unknown field {shown(clipped(str(fault['loc'][-1]), 60))}"
        case "literal_error":
            words = said.removeprefix("Input should be ").replace("'", "").replace(" or ", ", ")
            return f"{name} {shown(fault['input'])}: there are {words}"
        case "missing":
            return f"{name}: it is missing"
    return f"{name} {shown(fault['input'])}: {clipped(said, 200)}"
