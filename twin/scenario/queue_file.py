"""Reads the scenario of a queue: a file in which `jobs` is a mapping with a data set, or a shipped name."""

from pathlib import Path

from ingest.core import config, resources, safe_yaml, text_files
from ingest.core.errors import UsageError
from twin.settings.job_queue import QueueScenario

KIND = "queues"
"""Folder of the shipped ones in `configs`."""


def names() -> tuple[str, ...]:
    """Returns the names of the shipped queues."""
    return tuple(sorted(path.stem for path in resources.configs(KIND).glob("*.yaml")))


def load(name_or_path: str) -> QueueScenario | None:
    """Returns the queue of that name or file; None if it is none: a scenario of training, or nothing.

    Raises:
        UsageError: the file is one of a queue, and does not fit.
    """
    if name_or_path in names():
        return config.load(QueueScenario, resources.configs(KIND) / f"{name_or_path}.yaml")
    path = Path(name_or_path)
    if not text_files.is_file(name_or_path) or not is_queue(path):
        return None
    return config.load(QueueScenario, path)


def is_queue(path: Path) -> bool:
    """Returns True if `jobs` of a YAML file is a mapping.

    Raises:
        UsageError: the file cannot be read, or is no YAML.
    """
    document = safe_yaml.parsed(path, text_files.read(path), UsageError)
    return isinstance(document.value, dict) and isinstance(document.value.get("jobs"), dict)
