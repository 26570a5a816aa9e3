"""Scenarios of queues: what a file may say, and what the other commands say to it."""

from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from twin.scenario import prepare, queue_file
from twin.settings.job_queue import Between

FILE = "name: mine\njobs: {dataset: examples, window: {from_s: 10, to_s: 20}, load: 1.5}\nprocessors: 64\n"


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_says_jobs_machine_and_rules(tmp_path: Path) -> None:
    found = queue_file.load(written(tmp_path, FILE))
    assert found is not None and found.jobs.source == "examples" and found.jobs.load == 1.5
    assert found.jobs.window == Between(from_s=10, to_s=20) and found.rules == "predictsim"
    assert "nodes" not in found.model_dump()


def test_shipped_queues_fit_and_are_known_by_their_names() -> None:
    assert "queue-kth" in queue_file.names()
    for name in queue_file.names():
        found = queue_file.load(name)
        assert found is not None and found.name == name


def test_a_scenario_of_training_is_no_queue(repository: Path) -> None:
    assert queue_file.load("tri-7b") is None and queue_file.load("nothing") is None
    assert queue_file.load(str(repository / "configs/scenarios/tri-jobs.yaml")) is None


def test_commands_of_training_say_what_takes_a_queue(tmp_path: Path) -> None:
    for name in ("queue-kth", written(tmp_path, FILE)):
        with pytest.raises(UsageError, match="is a queue of jobs from a log: `twin replay`"):
            prepare.load(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILE.replace("load", "lode"), r"mine.yaml:2 jobs.lode: unknown key; did you mean 'load'"),
        (FILE.replace("processors: 64", ""), "say `processors`"),
        (FILE + "nodes: 2 x 8 V100\n", "not both"),
        (FILE + "placement: packing\n", "has no places"),
        (FILE.replace("20", "5"), "is not before"),
        (FILE.replace("load", "weibull_shape"), "belongs to"),
        (FILE.replace("load: 1.5", "arrivals: bursty"), "arrivals"),
        (FILE.replace("load: 1.5", "thin: 0"), "thin"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        queue_file.load(written(tmp_path, text))
