"""Replica groups of torchft."""

import ast
import json

import pytest

from ingest.core.errors import UsageError
from replay.export.contract import fitted
from replay.export.targets.torchft import TorchftTarget, settings
from tests.support.planned_jobs import KINDS, tri
from twin.core.plan import Plan, Share, Sync


def replicas(*shapes: tuple[int, int], every: int = 50) -> Plan:
    shares = tuple(Share(k, 34, tp, pp, tuple(range(2 * tp * pp))) for k, (tp, pp) in enumerate(shapes))
    return Plan(shares, 2, 1, 8, zero=1, sync=Sync(every, 4.0))


def test_groups_meet_after_the_inner_steps_of_the_plan() -> None:
    found = settings(KINDS["replicas"]())
    assert (found["inner_steps"], found["groups"]) == (50, ["us-east-1", "eu-west-1"])
    assert found["global_batch"] == 16
    assert settings(KINDS["synchronous replicas"]())["inner_steps"] == 1


def test_every_group_has_its_launcher_and_its_number() -> None:
    files = TorchftTarget().files(KINDS["replicas"]())
    script = files["launch-eu-west-1.sh"]
    assert isinstance(script, str)
    assert "export REPLICA_GROUP_ID=1" in script and "eu-west-1-node0) RANK_OF_NODE=0 PROCESSES=4" in script
    assert "TORCHFT_LIGHTHOUSE" in script and "replica.py" in script
    assert json.loads(files["plan.json"])["stages"] == 1


def test_the_script_takes_the_pipeline_from_the_file_beside_it() -> None:
    text = TorchftTarget().files(KINDS["replicas"]())["replica.py"]
    assert isinstance(text, str) and "replay" not in text
    names = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "train"
        for alias in node.names
    }
    train = TorchftTarget().files(KINDS["replicas"]())["train.py"]
    given = {getattr(node, "name", None) for node in ast.parse(train).body} | {"HERE"}
    assert names and names <= given


def test_a_pipeline_over_domains_is_no_plan_of_replicas() -> None:
    with pytest.raises(UsageError, match=r"torchft cannot express: a pipeline over domains.*--policy diloco"):
        fitted(TorchftTarget(), KINDS["uneven stages"](), nearest=True)


def test_groups_get_one_shape() -> None:
    job = tri(replicas((2, 1), (1, 2)))
    found = fitted(TorchftTarget(), job, nearest=True)
    assert len({(share.tp, share.pp) for share in found.job.plan.shares}) == 1
    assert found.job.plan.sync == job.plan.sync and not job.estimator.problems(found.job.plan)
