"""Address under which stored schedules name their tasks; `replay.training.schedule` holds them."""

from replay.training.schedule import scheduled, watched

__all__ = ["scheduled", "watched"]
