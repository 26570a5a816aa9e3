"""Batch scripts of Slurm: their directives, and the ranks that their tasks get."""

import csv
import io
import os
import subprocess
from pathlib import Path

import pytest

from replay.export.targets.slurm import SlurmTarget, batch_script, components, even_nodes, time_limit
from tests.support.planned_jobs import KINDS, tri, uneven

SRUN = """#!/usr/bin/env python3
# Stands for srun: runs the tasks of each component, one after the other, as Slurm numbers them.
import os, subprocess, sys
groups, words = [[]], sys.argv[1:]
for word in words:
    groups.append([]) if word == ":" else groups[-1].append(word)
rank = 0
for group in groups:
    options = dict(word.lstrip("-").split("=") for word in group if word.startswith("--"))
    command = [word for word in group if not word.startswith("--")]
    for local in range(int(options["ntasks"])):
        env = {**os.environ, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local % 4)}
        said = "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR"
        subprocess.run([*command[:-2], "sh", "-c", said], env=env)
        rank += 1
"""


def directives(script: str) -> list[dict[str, str]]:
    """The options of each component of a batch script; raises for a line that sbatch would not take."""
    found: list[dict[str, str]] = [{}]
    for number, line in enumerate(script.splitlines()):
        if not line.startswith("#SBATCH"):
            continue
        word = line.removeprefix("#SBATCH ")
        if word == "hetjob":
            found.append({})
            continue
        assert word.startswith("--"), f"line {number}: {line}"
        name, _, value = word[2:].partition("=")
        assert name not in found[-1], f"line {number}: {name} twice"
        found[-1][name] = value
    return found


def test_each_domain_is_a_component_in_the_order_of_the_pipeline() -> None:
    one, two, three = directives(batch_script(KINDS["three domains"]()))
    assert [c["constraint"] for c in (one, two, three)] == ["ap-northeast-1", "us-east-1", "eu-west-1"]
    assert {(c["nodes"], c["ntasks"], c["gpus-per-node"]) for c in (one, two, three)} == {("1", "4", "4")}
    assert one["job-name"] == "tri-7b" and "job-name" not in two
    assert one["comment"] == "twin:llama2-7b,global_batch=32" and "comment" not in two


def test_a_plan_in_one_domain_is_an_ordinary_job() -> None:
    script = batch_script(KINDS["one domain"]())
    assert "hetjob" not in script and "--het-group" not in script and len(directives(script)) == 1


def test_the_tasks_have_the_ranks_of_the_plan(tmp_path: Path) -> None:
    job = tri(uneven())
    for name, data in SlurmTarget().files(job).items():
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\necho first\necho second\n")):
        (tmp_path / name).write_text(text)
    for name in ("srun", "scontrol", "task.sh"):
        (tmp_path / name).chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    path |= {"SLURM_JOB_NODELIST_HET_GROUP_0": "x", "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", tmp_path / "job.sbatch"], env=path, capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    planned = list(csv.DictReader(io.StringIO((tmp_path / "ranks.csv").read_text())))
    assert [row[0] for row in rows] == [one["rank"] for one in planned]
    assert [row[1] for row in rows] == [one["gpu"] for one in planned]
    assert {(row[2], row[3]) for row in rows} == {("6", "first")}


def test_nodes_of_a_component_are_alike() -> None:
    assert even_nodes(tri(uneven())) is None
    assert [(site, len(nodes)) for site, nodes in components(tri(uneven()))] == [
        ("us-east-1", 1), ("ap-northeast-1", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(("iterations", "limit"), [(1, "0-00:00:09"), (10_000, "1-00:00:00")])
def test_the_limit_is_written_as_slurm_reads_it(iterations: int, limit: str) -> None:
    assert time_limit(tri(uneven(), None), iterations) == limit


def test_the_limit_is_that_of_the_expected_iterations() -> None:
    job = tri(uneven())
    assert job.iteration_s is not None
    days, clock = time_limit(job).split("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    found = ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    assert found == pytest.approx(10_000 * job.iteration_s, abs=1)
