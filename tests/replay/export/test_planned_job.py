"""Plans of files and runs, with what they refer to."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from ingest.core.errors import NotFoundError, UsageError
from replay.export import planned_job
from replay.store import run_index
from tests.support.commands import STATIC
from tests.support.planned_jobs import KINDS, tri, uneven
from twin.core.plan import to_json


def plan_file(path: Path, plan: dict[str, object]) -> Path:
    domains = ["us-east-1", "eu-west-1", "ap-northeast-1"]
    body = {"schema": "twin.plan-file/1", "scenario": "tri-7b", "model": "llama2-7b", "domains": domains}
    path.write_text(yaml.safe_dump({**body, "plan": plan}))
    return path


def test_a_plan_file_is_read_with_the_typical_links_of_the_lake(kept_store: Path, tmp_path: Path) -> None:
    path = plan_file(tmp_path / "plan.yaml", to_json(uneven()))
    job = planned_job.find(kept_store, str(path))
    assert (job.name, job.plan, job.origin) == ("tri-7b", uneven(), str(path))
    assert job.iteration_s is not None and 3 < job.iteration_s < 30
    assert planned_job.find(tmp_path / "empty", str(path)).links is None


def test_a_run_has_the_plan_in_force_after_each_decision(kept_store: Path) -> None:
    run = run_index.find(kept_store, STATIC)
    last, first = planned_job.find(kept_store, STATIC), planned_job.find(kept_store, run, 0)
    assert first.origin == f"decision 0 of {run}" and last.plan.shares == first.plan.shares
    assert last.iteration_s is not None
    with pytest.raises(NotFoundError, match="no decision 99999; its last one is"):
        planned_job.find(kept_store, run, 99999)


def test_a_plan_file_has_no_decisions(tmp_path: Path) -> None:
    path = plan_file(tmp_path / "plan.yaml", to_json(uneven()))
    with pytest.raises(UsageError, match="only runs have decisions"):
        planned_job.find(tmp_path, str(path), 1)


def test_a_plan_that_was_edited_has_to_fit_still(tmp_path: Path) -> None:
    edited = replace(uneven(), micro_batches=8)
    with pytest.raises(UsageError, match="global batch 32"):
        planned_job.of_file(tmp_path, plan_file(tmp_path / "plan.yaml", to_json(edited)))


@pytest.mark.parametrize("kind", ["uneven stages", "interleaved", "zb-v", "three domains"])
def test_parts_hold_every_layer_once(kind: str) -> None:
    job = KINDS[kind]()
    parts = sorted(job.parts(), key=lambda part: part.first)
    assert (parts[0].first, parts[-1].past) == (0, 34)
    assert all(a.past == b.first for a, b in pairwise(parts))
    assert len(parts) == job.plan.stages * job.plan.chunks


def test_uneven_parts_are_those_of_the_plan() -> None:
    assert [(part.first, part.past, part.domain) for part in tri(uneven()).parts()] == [
        (0, 10, 0), (10, 19, 0), (19, 34, 2),
    ]  # fmt: skip
