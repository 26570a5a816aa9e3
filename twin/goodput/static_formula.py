"""Largest batch by the fixed formula: what memory leaves over constant parts, divided by bytes a sample."""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class FormulaBatch:
    """Largest micro-batch by the formula, 0 where nothing fits, and the accumulation for a batch of a GPU."""

    micro_batch: int
    accumulation: int


def largest_batch(gpu_bytes: float, static_bytes: float, reserved_bytes: float, sample_bytes: float) -> int:
    """Largest batch whose memory fits: floor((M_gpu - M_static - M_reserved) / k), at least 0.

    Source: design documents, chapter 3, 3.2.2. GPT-2 with 16,000 MB, 3,000 + 9,000 MB static, 1,600 MB
    reserved and 50 MB a sample gives 48.
    """
    return max(0, int((gpu_bytes - static_bytes - reserved_bytes) // sample_bytes))


def accumulated(wanted: int, largest: int) -> FormulaBatch:
    """The largest batch, and how often it is accumulated to reach `wanted`: ceil(wanted / largest)."""
    return FormulaBatch(largest, ceil(wanted / largest) if largest else 0)
