"""Folders of the files that ship with the project: `configs/` and `traces/`."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def root() -> Path:
    """Returns the repository root in a checkout, the folder packed into the wheel in an installation."""
    checkout = _PACKAGE.parent
    return checkout if (checkout / "configs").is_dir() else _PACKAGE / "_shipped"


def configs(kind: str) -> Path:
    """Returns the folder of the shipped YAML files of one kind: `scenarios`, `algo`."""
    return root() / "configs" / kind


def traces() -> Path:
    """Returns the folder of the shipped synthetic traces."""
    return root() / "traces"
