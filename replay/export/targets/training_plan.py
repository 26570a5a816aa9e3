"""`TrainingPlan`, a Kubernetes resource that holds a plan, with its OpenAPI schema."""

from typing import Any

from replay.export import rank_map
from replay.export.planned_job import PlannedJob
from replay.export.targets import torchrun
from twin.core.plan import to_json

GROUP, VERSION, KIND, PLURAL = "twin.local", "v1alpha1", "TrainingPlan", "trainingplans"
COUNT = {"type": "integer", "minimum": 1, "format": "int64"}
BATCH = {**COUNT, "maximum": 1_000_000}
FROM_ZERO = {"type": "integer", "minimum": 0, "format": "int64"}
TEXT = {"type": "string", "minLength": 1, "maxLength": 200}


def resource(job: PlannedJob) -> dict[str, Any]:
    """Returns the plan as an object of the kind."""
    plan = to_json(job.plan)
    shares = [
        {
            "domain": job.domains[share.domain].name, "layers": share.layers, "tensorParallel": share.tp,
            "stages": share.pp, "gpus": list(share.gpus),
        }
        for share in job.plan.shares
    ]  # fmt: skip
    spec: dict[str, Any] = {
        "model": job.model.name,
        "globalBatch": job.job.global_batch,
        "shares": shares,
        "dataParallel": plan["dp"],
        "microBatch": plan["micro_batch"],
        "microBatches": plan["micro_batches"],
        "schedule": plan["schedule"],
        "extraWarmup": plan["extra_warmup"],
        "chunks": job.plan.chunks,
        "recompute": plan["recompute"],
        "zero": plan["zero"],
        "parts": torchrun.split(job)["parts"],
        "routes": [[job.domains[k].name for k in route] for route in job.plan.routes],
    }
    if job.iteration_s is not None:
        spec["expectedIterationSeconds"] = round(job.iteration_s, 6)
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": rank_map.job_name(job)},
        "spec": spec,
    }


def definition() -> dict[str, Any]:
    """Returns the CustomResourceDefinition of the kind."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Model", "type": "string", "jsonPath": ".spec.model"},
            {"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {
                "name": "Accepted",
                "type": "string",
                "jsonPath": '.status.conditions[?(@.type=="Accepted")].status',
            },
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "plural": PLURAL, "singular": KIND.lower(), "shortNames": ["tplan"]},
            "versions": [version],
        },
    }


def schema() -> dict[str, Any]:
    """Returns the OpenAPI v3 schema of the kind, a structural one: every field has its type."""
    share = _object(
        {
            "domain": TEXT, "layers": COUNT, "tensorParallel": COUNT, "stages": COUNT,
            "gpus": _list(FROM_ZERO),
        }
    )  # fmt: skip
    part = _object({"stage": FROM_ZERO, "domain": TEXT, "first": FROM_ZERO, "past": COUNT})
    spec = _object(
        {
            "model": TEXT, "globalBatch": BATCH, "shares": _list(share), "dataParallel": COUNT,
            "microBatch": COUNT, "microBatches": COUNT,
            "schedule": _one_of("gpipe", "1f1b", "interleaved", "crosspipe", "zb-h1", "zb-v"),
            "extraWarmup": FROM_ZERO, "chunks": COUNT, "recompute": _one_of("none", "selective", "full"),
            "zero": {"type": "integer", "minimum": 0, "maximum": 3}, "parts": _list(part),
            "routes": {"type": "array", "items": _list(TEXT, 3)},
        },
        {
            "expectedIterationSeconds": {"type": "number", "minimum": 0},
            # For the operator (service/operator); without it they mean nothing.
            "image": TEXT, "queue": TEXT, "follow": _one_of("never", "lost", "better"),
            "minGain": {"type": "number", "minimum": 0}, "pauseSeconds": {"type": "number", "minimum": 0},
            "horizonSeconds": {"type": "number", "minimum": 1},
        },
    )  # fmt: skip
    status = {"type": "object", "properties": _status()}
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": spec, "status": status,
        },
    }  # fmt: skip


def _status() -> dict[str, Any]:
    """What the operator writes: `service.operator.plan_object.PlanState`."""
    return {
        "phase": _one_of("Pending", "Running", "Moving", "Finished", "Failed"),
        "message": {"type": "string"}, "revision": FROM_ZERO, "observedGeneration": FROM_ZERO,
        "model": TEXT, "globalBatch": COUNT, "planDigest": {"type": "string"},
        "plan": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "gpus": {"type": "object", "additionalProperties": FROM_ZERO},
        "expectedIterationSeconds": {"type": "number", "minimum": 0},
        "conditions": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": _object(
                {
                    "type": TEXT, "status": _one_of("True", "False", "Unknown"), "reason": TEXT,
                    "message": {"type": "string"}, "lastTransitionTime": {"type": "string"},
                },
                {"observedGeneration": FROM_ZERO},
            ),
        },
    }  # fmt: skip


def _object(needed: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(needed), "properties": {**needed, **(optional or {})}}


def _list(items: dict[str, Any], least: int = 1) -> dict[str, Any]:
    return {"type": "array", "minItems": least, "items": items}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}
