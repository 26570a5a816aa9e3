"""One check of an installation."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "note", "missing", "broken"]
"""ok; worth knowing; absent, though nothing needs it until an extra is used; and what does not work."""


@dataclass(frozen=True, slots=True)
class Check:
    """Name, state and finding of a check, and the command that mends it (none: nothing to do)."""

    name: str
    state: State
    found: str
    way: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns all fields by name."""
        return asdict(self)
