"""Ranges of numbers in configurations: generous, finite, each with its reason."""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from ingest.core.names import STORED

SEED_LIMIT = 2**63
"""Seeds lie below it: event logs and SQL hold them as 64-bit integers with a sign."""


@dataclass(frozen=True, slots=True)
class Within:
    """Annotation of a number: it lies from `low` to `high`, and `why` says where the bounds come from.

    With `above` it is greater than `low`. True and false are no numbers. What a store holds is not held to
    the range: earlier versions had none.
    """

    low: float
    high: float
    why: str
    above: bool = False

    @property
    def words(self) -> str:
        """The range as text: "1 to 10,000"."""
        low, high = _text(self.low), _text(self.high)
        return f"above {low}, up to {high}" if self.above else f"{low} to {high}"

    def fault(self, number: float) -> str | None:
        """Returns what is wrong with a number, in words; None if it lies in the range."""
        if self.low <= number <= self.high and not (self.above and number == self.low):
            return None
        return f"must be {self.words}: {self.why}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Schema of the number, then of its range."""
        return core_schema.with_info_wrap_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """JSON schema of the number with its range, for editors."""
        least = "exclusiveMinimum" if self.above else "minimum"
        text = f"{self.words}: {self.why}"
        return {**handler(core), least: self.low, "maximum": self.high, "description": text}

    def _checked(
        self, value: Any, read: core_schema.ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"must be a number, {self.words}; true and false are none")
        number = read(value)
        if number is not None and info.context != STORED and (fault := self.fault(number)):
            raise ValueError(fault)
        return number


def _text(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
