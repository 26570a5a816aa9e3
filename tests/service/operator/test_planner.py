"""Plans for the operator from our own search and from a service, and the children written for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ingest.core.errors import InputError, NotFoundError, UsageError
from replay.export.targets import kubernetes
from replay.export.targets.training_plan import resource, schema
from replay.store.decision_codec import plan_to_json
from service.operator import loop
from service.operator.children import manifests_by
from service.operator.cluster_view import OWNER, ClusterView, child_of, gpus_by_domain
from service.operator.plan_object import PlanObject
from service.operator.planner import ScenarioPlanner, ServicePlanner
from service.operator.reconcile import ApplyChild, SetStatus, reconcile
from tests.support.planned_jobs import KINDS, LINKS
from tests.support.serving import listening
from tests.support.worlds import toy_setup
from twin.scenario.prepare import load

DOMAINS = {"us-east-1": 4, "eu-west-1": 4, "ap-northeast-1": 4}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def planner() -> ScenarioPlanner:
    return ScenarioPlanner(load("tri-7b"), Path("no-store"), LINKS)


def written(kind: str = "three domains", name: str = "trial", **more: Any) -> PlanObject:
    body = resource(KINDS[kind]())
    body["metadata"] = {"name": name, "namespace": "ml", "uid": "u-1", "generation": 3}
    body["spec"] |= more
    jsonschema.validate(body, schema())
    return PlanObject.of(body)


@pytest.mark.parametrize(
    "kind", ["uneven stages", "three domains", "deeper warm-up", "relayed", "one domain"]
)
def test_the_plan_of_an_object_is_the_plan_that_was_exported(planner: ScenarioPlanner, kind: str) -> None:
    job, found = KINDS[kind](), planner.written(written(kind))
    given = {**plan_to_json(job.plan), "p2p": found["p2p"]}  # type: ignore[dict-item]
    assert planner.planned("x", ("llama2-7b", 32), found).plan == replace(job.plan, p2p=found["p2p"])
    assert {k: v for k, v in found.items() if k not in ("shares", "routes")} == {
        k: v for k, v in given.items() if k not in ("shares", "routes")
    }
    assert planner.counts(found) == {job.domains[s.domain].name: len(s.gpus) for s in job.plan.shares}


def test_a_specification_that_is_no_plan_here_is_named(planner: ScenarioPlanner) -> None:
    elsewhere = written()
    elsewhere.spec["shares"][0]["domain"] = "mars"
    with pytest.raises(InputError, match="no domain mars in the scenario"):
        planner.written(elsewhere)
    with pytest.raises(UsageError):
        planner.written(written(model="no-such-model"))
    with pytest.raises(UsageError, match="cannot run"):
        planner.written(written(globalBatch=7))


def test_the_search_takes_the_gpus_that_there_are(planner: ScenarioPlanner) -> None:
    job = ("llama2-7b", 32)
    answer = planner.ask(job, {**DOMAINS, "eu-west-1": 0}, planner.written(written("one domain")))
    assert answer.plan is not None and answer.iteration_s is not None
    assert "eu-west-1" not in planner.counts(answer.plan) and answer.given_s is not None
    again = planner.ask(job, DOMAINS, answer.plan)
    assert again.given_s == answer.iteration_s
    assert planner.ask(job, {}, None).plan is None
    assert planner.free({"us-east-1": 99, "elsewhere": 8}) == (4, 0, 0)


def test_a_service_is_asked_for_the_gpus_that_there_are(tmp_path: Path) -> None:
    scenario, job = toy_setup().scenario, ("gpt2-1.5b", 8)
    with listening(tmp_path) as url:
        planner = ServicePlanner(scenario, tmp_path, url)
        best = planner.ask(job, {"d0": 4, "d1": 4, "d2": 4}, None)
        assert best.plan is not None and best.given_s is None
        fewer = planner.ask(job, {"d1": 2}, best.plan)
        assert fewer.plan is not None and fewer.given_s == pytest.approx(best.iteration_s)
        assert set(planner.counts(fewer.plan)) == {"d1"} and planner.ask(job, {}, None).plan is None
        with pytest.raises(UsageError, match="no-such-model"):
            planner.ask(("no-such-model", 8), {"d1": 2}, None)
    with pytest.raises(NotFoundError, match="does not answer"):
        planner.ask(job, {"d1": 2}, None)


def test_the_children_are_those_of_the_export_with_owner_image_and_queue(planner: ScenarioPlanner) -> None:
    plan = written(image="torch:2.8", queue="blue")
    actions = reconcile(plan, ClusterView(DOMAINS), planner, manifests_by(planner.planned))
    status, files, job_set = actions
    assert isinstance(status, SetStatus) and isinstance(files, ApplyChild) and isinstance(job_set, ApplyChild)
    jsonschema.validate(status.state.to_status(), schema()["properties"]["status"])
    exported = kubernetes.job_set(replace(KINDS["three domains"](), name="trial-r1"))
    found: Json = job_set.manifest
    for one, other in zip(found["spec"]["replicatedJobs"], exported["spec"]["replicatedJobs"], strict=True):
        (container,) = one["template"]["spec"]["template"]["spec"]["containers"]
        assert container.pop("image") == "torch:2.8"
        other["template"]["spec"]["template"]["spec"]["containers"][0].pop("image")
        assert one == other
    head = found["metadata"]
    assert head["labels"]["kueue.x-k8s.io/queue-name"] == "blue" and head["labels"][OWNER] == "u-1"
    assert head["ownerReferences"][0]["uid"] == "u-1" and head["namespace"] == "ml"
    (volume, *_) = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["name"] == files.manifest["metadata"]["name"] == "trial-r1-files"
    again = reconcile(
        replace(plan, state=status.state),
        ClusterView(DOMAINS, tuple(child_of(a.manifest["kind"], a.manifest) for a in (files, job_set))),
        planner, manifests_by(planner.planned),
    )  # fmt: skip
    assert again == []


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = written(name="x" * 60 + "a"), written(name="x" * 60 + "b")
    assert len(one.base) <= 28 and one.base != other.base and one.base.startswith("xxx")
    assert written(name="a.b").base != written(name="a-b").base


def node(name: str, domain: str, gpus: int, ready: str = "True", **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "labels": {kubernetes.ZONE: domain}}, "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)},
                   "conditions": [{"type": "Ready", "status": ready}]},
    }  # fmt: skip


def test_only_gpus_of_nodes_that_take_pods_count() -> None:
    nodes = [
        node("a", "x", 8), node("b", "x", 4), node("c", "x", 8, "False"), node("d", "y", 8, "Unknown"),
        node("e", "y", 2, unschedulable=True), node("f", "z", 0), {"metadata": {"name": "g"}},
    ]  # fmt: skip
    assert gpus_by_domain(nodes) == {"x": 12}


def test_what_a_job_set_says_is_read() -> None:
    head = {"metadata": {"name": "n"}}
    done = {"conditions": [{"type": "Completed", "status": "True"}, {"type": "Failed", "status": "False"}]}
    ready = {"replicatedJobsStatus": [{"name": "a", "ready": 1}, {"name": "b", "ready": 1}]}
    assert child_of("JobSet", {**head, "status": done}).end == "Finished"
    assert child_of("JobSet", {**head, "status": ready}).ready
    assert not child_of("JobSet", {**head, "status": {"replicatedJobsStatus": [{"ready": 1}, {}]}}).ready
    assert not child_of("JobSet", head).ready


def test_the_operator_says_what_it_lacks() -> None:
    with pytest.raises(UsageError, match="TWIN_SCENARIO"):
        loop.planner({})
    with pytest.raises((NotFoundError, UsageError), match="no-such"):
        loop.planner({"TWIN_SCENARIO": "no-such"})
