"""Speeds of job types on several GPU models, and the types of a list of Gavel."""

import json
from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.readers.clusters.gavel_speeds import gavel_speeds, is_gavel, job_types


def test_a_job_larger_than_a_node_runs_as_measured_on_several(tmp_path: Path) -> None:
    table = {"v100": {"('a', 8)": {"null": 4.0}}, "v100_unconsolidated": {"('a', 8)": {"null": 3.0}}}
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(table))
    assert is_gavel(tmp_path)
    found = gavel_speeds(tmp_path)
    assert found.model("V100") == "v100"
    assert found.steps_per_s("a", 8, "v100", 8) == 4.0
    assert found.steps_per_s("a", 8, "v100", 4) == 3.0
    assert found.steps_per_s("a", 4, "v100", 4) == 0.0
    with pytest.raises(UsageError, match="no GPU 'v100_unconsolidated'; it has v100"):
        found.model("v100_unconsolidated")


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    for text, why in (("{", "no JSON"), ("[]", "no object of GPU models")):
        (tmp_path / "simulation_throughputs.json").write_text(text)
        with pytest.raises(InputError, match=why):
            gavel_speeds(tmp_path)


def test_types_stand_in_lists_of_gavel_alone(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "two.trace"
    path.write_text("a\trun\td\t-s\t1\t9\t1\t1\t-1\t0\nb (batch size 5)\trun\td\t-s\t1\t9\t2\t1\t-1\t5\n")
    assert job_types(path) == {"two-1": "a", "two-2": "b (batch size 5)"}
    assert job_types(repository / "examples/queue.swf") == {}
