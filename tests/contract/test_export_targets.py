"""Every target of `twin export`, with plans of every kind."""

import ast
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from ingest.core.errors import ExistsError, UsageError
from replay.export import registry, writing
from replay.export.contract import ExportTarget, fitted
from replay.export.planned_job import PlannedJob
from tests.support.planned_jobs import KINDS

TARGETS = list(registry.TARGETS)
SAFE = re.compile(r"[a-z0-9][a-z0-9._-]*", re.IGNORECASE)


@cache
def job_of(kind: str) -> PlannedJob:
    return KINDS[kind]()


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> ExportTarget:
    return registry.target(request.param)


def test_a_target_has_the_name_it_is_registered_by() -> None:
    assert [registry.target(name).name for name in TARGETS] == TARGETS


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_writes_the_plan_or_says_what_it_cannot_express(target: ExportTarget, kind: str) -> None:
    job = job_of(kind)
    try:
        found = fitted(target, job, nearest=True)
    except UsageError as error:
        assert str(error).startswith(f"{target.name} cannot express: ")
        assert "There is no near plan: " in str(error)
        return
    assert target.difference(found.job) is None
    plan, asked = found.job.plan, job.plan
    assert (plan.cuts[-1], plan.dp, plan.order) == (asked.cuts[-1], asked.dp, asked.order)
    if found.changed:
        with pytest.raises(UsageError, match=r"The nearest.*--nearest exports it"):
            fitted(target, job, nearest=False)
    else:
        assert found.job is job


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_the_same_each_time_and_read_as_what_they_are(target: ExportTarget, kind: str) -> None:
    try:
        found = writing.export(target, job_of(kind), Path("unused"), nearest=True)
    except UsageError:
        return
    assert found.files == writing.export(target, job_of(kind), Path("unused"), nearest=True).files
    assert all(SAFE.fullmatch(name) for name in found.files)
    text = found.files["README.md"].decode()
    assert all(f"`{name}`" in text for name in found.files if name != "README.md")
    assert all(one.part in text for one in found.fitted.changed)
    for name, data in found.files.items():
        match Path(name).suffix:
            case ".json" | ".jsonl":
                json.loads(data)
            case ".yaml" | ".yml":
                assert list(yaml.safe_load_all(data))
            case ".py":
                ast.parse(data)


def test_shell_scripts_are_shell(target: ExportTarget, tmp_path: Path) -> None:
    kind = {"torchft": "replicas", "astra-sim": "one domain"}.get(target.name, "uneven stages")
    writing.export(target, job_of(kind), tmp_path, nearest=True).write(force=False)
    for script in (*tmp_path.glob("*.sh"), *tmp_path.glob("*.sbatch")):
        subprocess.run(["bash", "-n", script], check=True)


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    found = writing.export(registry.target("megatron"), job_of("uneven stages"), tmp_path, nearest=True)
    (tmp_path / "ranks.csv").write_text("mine")
    with pytest.raises(ExistsError, match=r"ranks\.csv.*--force"):
        found.write(force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["ranks.csv"]
    found.write(force=True)
    assert {path.name for path in tmp_path.iterdir()} == set(found.files)
    assert (tmp_path / "ranks.csv").read_bytes() == found.files["ranks.csv"]
