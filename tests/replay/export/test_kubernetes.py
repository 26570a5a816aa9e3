"""Manifests of Kubernetes, held to schemas: the CRD's own, and those of JobSet and Kueue in short."""

from typing import Any

import jsonschema
import pytest
import yaml

from replay.export.contract import fitted
from replay.export.targets.kubernetes import KubernetesTarget
from tests.support.planned_jobs import KINDS

NAME = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", "maxLength": 63}
TEXT = {"type": "string"}
WHOLE = {"type": "integer", "minimum": 0}


def closed(needed: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these fields and no other: the API server would drop or refuse a misspelt one."""
    return {
        "type": "object", "required": list(needed), "properties": {**needed, **optional},
        "additionalProperties": False,
    }  # fmt: skip


def many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


GPUS = closed({"nvidia.com/gpu": {"type": "integer", "minimum": 1}})
EXPRESSION = closed({"key": TEXT, "operator": {"enum": ["In", "NotIn", "Exists"]}}, values=many(TEXT))
CONTAINER = closed(
    {"name": NAME, "image": TEXT, "command": many(TEXT)},
    ports=many(closed({"containerPort": WHOLE})), resources=closed({"limits": GPUS}, requests=GPUS),
    env=many(closed({"name": TEXT, "value": TEXT})),
    volumeMounts=many(closed({"name": NAME, "mountPath": TEXT})),
)  # fmt: skip
VOLUME = closed({"name": NAME}, configMap=closed({"name": NAME}), emptyDir=closed({}, medium=TEXT))
SELECTOR = closed({"nodeSelectorTerms": many(closed({"matchExpressions": many(EXPRESSION)}))})
POD = closed(
    {"containers": many(CONTAINER), "restartPolicy": {"enum": ["Never", "OnFailure"]}},
    volumes=many(VOLUME),
    affinity=closed({"nodeAffinity": closed({"requiredDuringSchedulingIgnoredDuringExecution": SELECTOR})}),
)
JOB = closed(
    {"template": closed({"spec": POD}, metadata={"type": "object"})},
    parallelism=WHOLE, completions=WHOLE, completionMode={"enum": ["Indexed"]}, backoffLimit=WHOLE,
)  # fmt: skip
JOB_SET = closed(
    {"replicatedJobs": many(closed({"name": NAME, "template": closed({"spec": JOB})}, replicas=WHOLE))},
    network=closed({}, enableDNSHostnames={"type": "boolean"}, subdomain=NAME),
    failurePolicy=closed({}, maxRestarts=WHOLE),
    successPolicy=closed({"operator": {"enum": ["All", "Any"]}}),
)
METADATA = closed({"name": NAME}, labels={"type": "object"}, namespace=NAME)
QUOTA = closed({"name": TEXT, "nominalQuota": WHOLE})
FLAVOR = closed({"name": NAME, "resources": many(QUOTA)})
KINDS_OF_OBJECT = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOB_SET,
    ("kueue.x-k8s.io/v1beta1", "ResourceFlavor"): closed({"nodeLabels": {"type": "object"}}),
    ("kueue.x-k8s.io/v1beta1", "ClusterQueue"): closed(
        {"resourceGroups": many(closed({"coveredResources": many(TEXT), "flavors": many(FLAVOR)}))},
        namespaceSelector={"type": "object"},
    ),
    ("kueue.x-k8s.io/v1beta1", "LocalQueue"): closed({"clusterQueue": NAME}),
}


def manifests(kind: str) -> dict[str, list[dict[str, Any]]]:
    target = KubernetesTarget()
    files = target.files(fitted(target, KINDS[kind](), nearest=True).job)
    return {name: list(yaml.safe_load_all(text)) for name, text in files.items()}


@pytest.mark.parametrize(
    "kind", ["uneven stages", "three domains", "interleaved", "relayed", "links unknown"]
)
def test_the_plan_fits_the_schema_of_its_definition(kind: str) -> None:
    found = manifests(kind)
    (definition,), (plan,) = found["trainingplan-crd.yaml"], found["trainingplan.yaml"]
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plan, schema)
    assert plan["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
    names = definition["spec"]["names"]
    assert definition["metadata"]["name"] == f"{names['plural']}.{definition['spec']['group']}"
    assert ("expectedIterationSeconds" in plan["spec"]) == (kind != "links unknown")


@pytest.mark.parametrize(
    ("field", "value"),
    [("schedule", "2f2b"), ("zero", 4), ("microBatches", 0), ("shares", []), ("dataParallel", "two")],
)
def test_the_schema_refuses_what_is_no_plan(field: str, value: object) -> None:
    found = manifests("uneven stages")
    schema = found["trainingplan-crd.yaml"][0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    plan = found["trainingplan.yaml"][0]
    plan["spec"][field] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plan, schema)


def test_the_schema_is_structural() -> None:
    def typed(schema: dict[str, Any]) -> bool:
        inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
        return "type" in schema and all(map(typed, inner))

    definition = manifests("uneven stages")["trainingplan-crd.yaml"][0]
    assert typed(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize("kind", ["uneven stages", "three domains", "deeper warm-up"])
def test_job_set_and_queues_have_the_fields_of_their_kinds(kind: str) -> None:
    found = manifests(kind)
    _files, job_set = found["jobset.yaml"]
    for one in (job_set, *found["kueue.yaml"]):
        jsonschema.validate(one["metadata"], METADATA)
        jsonschema.validate(one["spec"], KINDS_OF_OBJECT[one["apiVersion"], one["kind"]])


def test_pods_of_a_domain_stay_in_it_and_start_their_node() -> None:
    files, job_set = manifests("three domains")["jobset.yaml"]
    jobs = {one["name"]: one["template"]["spec"] for one in job_set["spec"]["replicatedJobs"]}
    assert list(jobs) == ["ap-northeast-1", "us-east-1", "eu-west-1"]
    pod = jobs["eu-west-1"]["template"]["spec"]
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = affinity["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["values"] == ["eu-west-1"]
    command = pod["containers"][0]["command"][2]
    assert "NODES=(eu-west-1-node0)" in command and "MASTER_ADDR=tri-7b-ap-northeast-1-0-0.tri-7b" in command
    assert "eu-west-1-node0) RANK_OF_NODE=2" in files["data"]["launch.sh"]
    assert pod["volumes"][0]["configMap"]["name"] == files["metadata"]["name"]
