"""A TrainingPlan that cannot be read or computed: its own condition, and nothing for the others."""

import asyncio
import resource as limits
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jsonschema
import kopf
import pytest

from replay.export.targets import kubernetes
from replay.export.targets.training_plan import resource, schema
from service.operator import handlers, loop
from service.operator.kube_api import KubeApi
from service.operator.planner import ScenarioPlanner
from tests.support.kube_server import KubeServer, kube_server
from tests.support.planned_jobs import KINDS, LINKS
from twin.scenario.prepare import load

Json = dict[str, Any]
SITES = ("us-east-1", "eu-west-1", "ap-northeast-1")
STATUS = schema()["properties"]["status"]


@pytest.fixture(scope="module")
def planner() -> ScenarioPlanner:
    return ScenarioPlanner(load("tri-7b"), Path("no-store"), LINKS)


def node(site: str, gpus: Any = "4") -> Json:
    return {
        "metadata": {"name": f"node-{site}", "labels": {kubernetes.ZONE: site}}, "spec": {},
        "status": {"allocatable": {"nvidia.com/gpu": gpus},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with kube_server() as one:
        for site in SITES:
            one.put("nodes", node(site))
        yield one


def trial(name: str = "trial", **more: Any) -> Json:
    body = resource(KINDS["three domains"]())
    return {**body, "metadata": {"name": name}, "spec": {**body["spec"], "image": "torch", **more}}


def api(server: KubeServer) -> KubeApi:
    return KubeApi(server.url, kubernetes.ZONE)


def status(server: KubeServer, name: str = "trial") -> Json:
    found: Json = server.objects["trainingplans", "ml", name].get("status", {})
    return found


def condition(server: KubeServer, name: str = "trial") -> Json:
    (found,) = status(server, name)["conditions"]
    jsonschema.validate(status(server, name), STATUS)
    return dict(found)


def share(**more: Any) -> list[Json]:
    first = deepcopy(trial()["spec"]["shares"])
    first[0] |= more
    return list(first)


BROKEN: dict[str, Json] = {
    "ten million micro-batches": {"globalBatch": 10**7, "microBatches": 10**7},
    "as many of a batch that fits": {"globalBatch": 10**6, "microBatches": 10**6, "chunks": 100},
    "beyond 64 bits": {"microBatches": 2**80},
    "negative": {"zero": -1},
    "much warm-up": {"extraWarmup": 10**18},
    "unknown schedule": {"schedule": "x"},
    "a text for a number": {"microBatch": "1"},
    "a number that is not whole": {"chunks": 1.5},
    "true": {"dataParallel": True},
    "no shares": {"shares": []},
    "shares of another type": {"shares": {"domain": "us-east-1"}},
    "a share without GPUs": {"shares": share(gpus=[])},
    "a share of a word": {"shares": ["us-east-1"]},
    "an unknown site": {"shares": share(domain="mars")},
    "a long route": {"routes": [["us-east-1"] * 1_000]},
    "a route of nulls": {"routes": [[None, None, None]]},
    "many layers": {"shares": share(layers=10**12)},
    "no model": {"model": None},
    "an unknown model": {"model": "no-such-model"},
    "an unknown way to follow": {"follow": "sometimes"},
    "a pause of a word": {"pauseSeconds": "long"},
    "an endless pause": {"pauseSeconds": 1e308},
    "a field that is not there": {"colour": "red"},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_plan_that_cannot_be_computed_has_its_condition(
    server: KubeServer, planner: ScenarioPlanner, kind: str
) -> None:
    before = limits.getrusage(limits.RUSAGE_SELF).ru_maxrss
    server.put("trainingplans", trial(**BROKEN[kind]), "ml")
    loop.visit(api(server), planner, "ml", "trial")
    found = condition(server)
    assert (found["status"], found["reason"]) == ("False", "InvalidPlan") and found["message"], found
    assert server.names("jobsets") == []
    assert loop.visit(api(server), planner, "ml", "trial") == []  # said once
    assert limits.getrusage(limits.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


@pytest.mark.parametrize("spec", [None, [], "x", 5, {}, {"model": "llama2-7b"}])
def test_a_specification_of_another_shape(server: KubeServer, planner: ScenarioPlanner, spec: Any) -> None:
    server.put("trainingplans", {**trial(), "spec": spec}, "ml")
    loop.visit(api(server), planner, "ml", "trial")
    assert condition(server)["status"] == "False"


@pytest.mark.parametrize(
    "damage",
    [
        {"revision": "x"},
        {"plan": {"shares": 5}},
        {"plan": {"p2p": "x"}},
        {"phase": "Gone"},
        {"gpus": {"a": "b"}},
        {"observedGeneration": None},
        {"conditions": 7},
    ],
)
def test_a_status_that_cannot_be_read_is_written_anew(
    server: KubeServer, planner: ScenarioPlanner, damage: Json
) -> None:
    server.put("trainingplans", trial(), "ml")
    loop.visit(api(server), planner, "ml", "trial")
    held = server.objects["trainingplans", "ml", "trial"]
    held["status"] = {**held["status"], **damage}
    loop.visit(api(server), planner, "ml", "trial")
    assert condition(server)["status"] == "True" and status(server)["plan"]["shares"]
    assert len(server.names("jobsets")) == 1 and loop.visit(api(server), planner, "ml", "trial") == []


def test_a_plan_is_refused_while_it_runs_and_read_again(server: KubeServer, planner: ScenarioPlanner) -> None:
    server.put("trainingplans", trial(), "ml")
    loop.visit(api(server), planner, "ml", "trial")
    assert condition(server)["status"] == "True"
    server.put("trainingplans", trial(microBatches=10**7), "ml")
    loop.visit(api(server), planner, "ml", "trial")
    assert condition(server)["status"] == "False" and "micro-batches are" in status(server)["message"]
    assert server.names("jobsets") == ["trial-r1"]  # what runs goes on
    server.put("trainingplans", trial(), "ml")
    loop.visit(api(server), planner, "ml", "trial")
    assert condition(server)["status"] == "True" and "read again" in status(server)["message"]
    assert server.names("jobsets") == ["trial-r1"]
    broken = trial(schedule="x")
    broken["metadata"]["deletionTimestamp"] = "2026-11-26T16:00:00Z"
    server.put("trainingplans", broken, "ml")
    server.apply(("trainingplans", "ml", "trial"), {"metadata": broken["metadata"]}, False, create=False)
    loop.visit(api(server), planner, "ml", "trial")
    assert server.names("jobsets") == server.names("configmaps") == []


def test_one_unreadable_plan_does_not_end_the_loop_over_the_others(
    server: KubeServer, planner: ScenarioPlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("trainingplans", {**trial("a-broken"), "spec": None}, "ml")
    server.put("trainingplans", trial("b-huge", microBatches=10**7), "ml")
    server.put("trainingplans", trial("c-fault"), "ml")
    server.put("trainingplans", trial("d-good"), "ml")
    server.objects["trainingplans", "ml", "nameless"] = {"metadata": {}, "spec": {}}
    written = planner.written

    def faulty(plan: Any) -> Json:
        if plan.name == "c-fault":
            raise MemoryError("of the test")
        return written(plan)

    monkeypatch.setattr(planner, "written", faulty)
    status = {"allocatable": {"nvidia.com/gpu": "4k"}, "conditions": [{}]}
    server.put(
        "nodes", {"metadata": {"name": "odd", "labels": {kubernetes.ZONE: SITES[0]}}, "status": status}
    )
    memo = MagicMock(found=handlers.Found(planner))
    memo.found.api = api(server)
    asyncio.run(handlers.node_changed(name="new", body=kopf.Body({}), memo=memo, type="DELETED"))
    changed = node("eu-west-1")
    asyncio.run(handlers.node_changed(name="new", body=kopf.Body(changed), memo=memo, type="ADDED"))
    reasons = {
        name: condition(server, name)["reason"] for name in ("a-broken", "b-huge", "c-fault", "d-good")
    }
    assert reasons == {
        "a-broken": "InvalidPlan", "b-huge": "InvalidPlan", "c-fault": "InternalError", "d-good": "Accepted",
    }  # fmt: skip
    assert server.names("jobsets") == ["d-good-r1"]


def test_a_plan_that_the_server_refuses_does_not_end_it_either(
    server: KubeServer, planner: ScenarioPlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("trainingplans", trial("a"), "ml")
    server.put("trainingplans", trial("b"), "ml")
    visit = loop.visit

    def refusing(one: KubeApi, found: Any, namespace: str, name: str) -> Any:
        if name == "a":
            raise loop.UsageError("422 of the test")
        return visit(one, found, namespace, name)

    monkeypatch.setattr(handlers.loop, "visit", refusing)
    memo = MagicMock(found=handlers.Found(planner))
    memo.found.api = api(server)
    asyncio.run(handlers.node_changed(name="n", body=kopf.Body(node("eu-west-1")), memo=memo, type="ADDED"))
    assert server.names("jobsets") == ["b-r1"]
