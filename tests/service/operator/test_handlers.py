"""The operator as kopf runs it, against the stand-in of `tests.support.kube_server`, no real API server."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml

from ingest.core import resources
from ingest.core.errors import NotFoundError, UsageError
from replay.export.targets import kubernetes
from replay.export.targets.training_plan import resource
from service.operator import handlers, loop
from service.operator.children import manifests_by
from service.operator.kube_api import FOLDERS, KubeApi
from service.operator.planner import ScenarioPlanner
from service.operator.reconcile import reconcile
from tests.support.kube_server import KubeServer, kube_server
from tests.support.planned_jobs import KINDS, LINKS
from twin.scenario.prepare import load

Json = dict[str, Any]
SITES = ("us-east-1", "eu-west-1", "ap-northeast-1")


@pytest.fixture(scope="module")
def planner() -> ScenarioPlanner:
    return ScenarioPlanner(load("tri-7b"), Path("no-store"), LINKS)


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with kube_server() as one:
        for site in SITES:
            one.put("nodes", node(site))
        yield one


def node(site: str, ready: str = "True") -> Json:
    return {
        "metadata": {"name": f"node-{site}", "labels": {kubernetes.ZONE: site}}, "spec": {},
        "status": {"allocatable": {"nvidia.com/gpu": "4"},
                   "conditions": [{"type": "Ready", "status": ready}]},
    }  # fmt: skip


def trial(**more: Any) -> Json:
    body = resource(KINDS["three domains"]())
    return {**body, "metadata": {"name": "trial"}, "spec": {**body["spec"], "image": "torch", **more}}


def api(server: KubeServer) -> KubeApi:
    return KubeApi(server.url, kubernetes.ZONE)


def status(server: KubeServer) -> Json:
    found: Json = server.objects["trainingplans", "ml", "trial"].get("status", {})
    return found


def test_every_visit_that_is_cut_short_is_finished_by_the_next(
    server: KubeServer, planner: ScenarioPlanner
) -> None:
    server.put("trainingplans", trial(), "ml")
    first = api(server).plan("ml", "trial")
    assert first is not None
    actions = reconcile(first, api(server).view(first), planner, manifests_by(planner.planned))
    api(server).act(first, actions[0])
    assert status(server)["revision"] == 1 and server.names("jobsets") == []
    assert len(loop.visit(api(server), planner, "ml", "trial")) == 2
    before = len(server.events)
    assert loop.visit(api(server), planner, "ml", "trial") == [] and len(server.events) == before
    api(server).act(first, actions[1])  # the same again changes nothing that counts
    assert server.names("configmaps") == ["trial-r1-files"] and server.names("jobsets") == ["trial-r1"]
    assert loop.visit(api(server), planner, "ml", "elsewhere") == []


def test_a_wrong_plan_is_said_in_its_status(server: KubeServer, planner: ScenarioPlanner) -> None:
    server.put("trainingplans", trial(model="no-such-model"), "ml")
    loop.visit(api(server), planner, "ml", "trial")
    assert status(server)["phase"] == "Failed" and "no-such-model" in status(server)["message"]
    assert loop.visit(api(server), planner, "ml", "trial") == []


def test_a_server_that_refuses_or_is_away_is_named(server: KubeServer, planner: ScenarioPlanner) -> None:
    server.refusing = 403
    with pytest.raises(UsageError, match=r"GET .*/trainingplans/trial: 403"):
        loop.visit(api(server), planner, "ml", "trial")
    with pytest.raises(NotFoundError, match="does not answer"):
        loop.visit(KubeApi("http://127.0.0.1:1", "zone"), planner, "ml", "trial")


@contextmanager
def operator() -> Iterator[None]:
    """kopf with our handlers, in a thread with a loop of its own."""
    stop, faults = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            asyncio.run(kopf.operator(
                registry=kopf.get_default_registry(), clusterwide=True, standalone=True, stop_flag=stop,
            ))  # fmt: skip
        except Exception as error:  # noqa: BLE001
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive() and not faults


def until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def test_create_lose_a_node_restart_update_delete(
    server: KubeServer, planner: ScenarioPlanner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers.loop, "planner", lambda: planner)  # kopf finds what this has registered
    account = {
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }  # fmt: skip
    (tmp_path / "config").write_text(yaml.safe_dump(account))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with operator():
        server.put("trainingplans", trial(), "ml")
        until(lambda: server.names("jobsets") == ["trial-r1"])
        server.put("nodes", node("eu-west-1", ready="Unknown"))
        until(lambda: server.names("jobsets") == ["trial-r2"])
        assert "GPUs were lost" in status(server)["message"] and "eu-west-1" not in status(server)["gpus"]
    server.remove("nodes", "node-us-east-1")  # while no operator runs
    with operator():
        until(lambda: server.names("jobsets") == ["trial-r3"])
        until(lambda: server.names("configmaps") == ["trial-r3-files"])
        assert set(status(server)["gpus"]) == {"ap-northeast-1"}
        server.put("trainingplans", trial(globalBatch=64, microBatches=32), "ml")
        until(lambda: server.names("jobsets") == ["trial-r4"] and status(server)["globalBatch"] == 64)
        leaving = {"metadata": {"deletionTimestamp": "2026-11-26T16:00:00Z"}}
        server.apply(("trainingplans", "ml", "trial"), leaving, False, create=False)
        until(lambda: server.names("jobsets") == server.names("configmaps") == [])


def test_the_rights_of_the_operator_are_those_that_it_uses() -> None:
    """Every request of the live test's kind is covered by `operator.yaml`, and the pod runs our handlers."""
    path = resources.configs("operations") / "kubernetes" / "operator.yaml"
    documents = {one["kind"]: one for one in yaml.safe_load_all(path.read_text())}
    allowed = {
        (kind, verb) for rule in documents["ClusterRole"]["rules"] for kind in rule["resources"]
        for verb in rule["verbs"]
    }  # fmt: skip
    for plural in (plural for _, plural in FOLDERS.values()):
        assert {(plural, verb) for verb in ("list", "create", "patch", "delete")} <= allowed
    plans = {("trainingplans", verb) for verb in ("get", "list", "watch", "patch")}
    assert plans | {("trainingplans/status", "patch"), ("nodes", "list"), ("nodes", "watch")} <= allowed
    assert not {verb for _, verb in allowed} & {"*", "escalate", "bind", "deletecollection"}
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:4] == ["kopf", "run", "--module", handlers.__name__]
    assert {one["name"] for one in container["env"]} <= {"TWIN_SCENARIO", "TWIN_URL", "TWIN_PERIOD_S"}
