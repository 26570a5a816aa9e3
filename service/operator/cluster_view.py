"""What the operator sees of a cluster: GPUs of domains on nodes that are ready, and children.

Sources: Kubernetes API conventions (conditions of nodes), JobSet v1alpha2 (its status).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from replay.export.targets.kubernetes import ZONE
from service.operator.plan_object import Json

GPU = "nvidia.com/gpu"
DIGEST = "twin.local/digest"
"""Annotation with the digest of a child's content."""
OWNER = "twin.local/plan-uid"
"""Label with the identity of the TrainingPlan that a child belongs to."""


@dataclass(frozen=True, slots=True)
class ChildObject:
    """An object that belongs to a TrainingPlan. `end`: Finished or Failed, None: it goes on."""

    kind: str
    name: str
    digest: str
    ready: bool = False
    end: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """GPUs by domain, and the children of one TrainingPlan."""

    gpus: Mapping[str, int]
    children: tuple[ChildObject, ...] = ()

    def child(self, kind: str, name: str) -> ChildObject | None:
        """Returns the child of that kind and name, None: there is none."""
        return next((one for one in self.children if (one.kind, one.name) == (kind, name)), None)


def gpus_by_domain(nodes: Iterable[Json], zone: str = ZONE) -> dict[str, int]:
    """Returns the GPUs on nodes that are ready and take pods, by the label of their domain."""
    found: dict[str, int] = {}
    for node in nodes:
        domain = node["metadata"].get("labels", {}).get(zone)
        count = _count(node.get("status", {}).get("allocatable", {}).get(GPU, 0))
        if domain is not None and count and _takes_pods(node):
            found[domain] = found.get(domain, 0) + count
    return dict(sorted(found.items()))


def _count(quantity: Any) -> int:
    """Returns a count of devices; 0 where the node says none that can be read."""
    text = str(quantity)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _takes_pods(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return ready and not node.get("spec", {}).get("unschedulable", False)


def child_of(kind: str, body: Json) -> ChildObject:
    """Returns a child as the API server describes it; one that is being deleted is still there."""
    status: dict[str, Any] = body.get("status") or {}
    true = {one.get("type") for one in status.get("conditions", ()) if one.get("status") == "True"}
    end = "Finished" if "Completed" in true else "Failed" if "Failed" in true else None
    jobs = status.get("replicatedJobsStatus", ())
    ready = bool(jobs) and all(one.get("ready", 0) >= 1 for one in jobs)
    digest = body["metadata"].get("annotations", {}).get(DIGEST, "")
    return ChildObject(kind, body["metadata"]["name"], digest, ready, end)
