"""What fields of configurations take: numbers in ranges, each with its reason, names and texts."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from ingest.core.names import MOST_LABEL, MOST_TEXT, PATTERN, RULE, STORED, is_name
from ingest.core.terminal import HIDDEN, shown

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


def _name(text: str, info: ValidationInfo) -> str:
    if info.context != STORED and not is_name(text):
        raise ValueError(f"{shown(text)} cannot be used; {RULE}")
    return text


def _visible(most: int) -> Any:
    def check(text: str, info: ValidationInfo) -> str:
        if info.context == STORED:
            return text
        if len(text) > most:
            raise ValueError(f"{shown(text)} has {len(text):,} letters; write at most {most:,}")
        if most == MOST_LABEL and (not text.strip() or HIDDEN.search(text) or "\n" in text):
            raise ValueError(f"{shown(text)} is empty or holds control characters; write what can be read")
        return text

    return AfterValidator(check)


Name = Annotated[str, AfterValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{PATTERN}$"})]
"""What users type to identify something, and what may become part of a path."""
Label = Annotated[str, _visible(MOST_LABEL)]
"""Name of a site, link, file or series as data have it: any letters that can be seen."""
Text = Annotated[str, _visible(MOST_TEXT)]
"""Sentences."""
