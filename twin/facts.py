"""What happens in the world, told in the order it happens; the runner turns facts into events."""

from dataclasses import dataclass, field
from typing import Any

from twin.view import View


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that happened. `payload` holds JSON values only; its fields are documented in `replay.events`."""

    sim_ns: int
    type: str
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trigger(Fact):
    """The controller must decide now: the runner answers with `World.apply` before the world goes on."""

    view: View | None = None
