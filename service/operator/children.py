"""The manifests of a plan's children: the JobSet and the ConfigMap of the export, with owner and revision."""

import hashlib
import json
from collections.abc import Callable

from replay.export.planned_job import PlannedJob
from replay.export.targets import kubernetes
from replay.export.targets.training_plan import GROUP, KIND, VERSION
from service.operator.cluster_view import DIGEST, OWNER
from service.operator.plan_object import Json, PlanObject, PlanState
from service.operator.reconcile import Manifests, child_name

Planned = Callable[[str, tuple[str, int], Json], PlannedJob]
QUEUE = "kueue.x-k8s.io/queue-name"


def manifests_by(planned: Planned) -> Manifests:
    """Returns the function that writes children, for `reconcile`."""

    def manifests(plan: PlanObject, state: PlanState) -> tuple[Json, ...]:
        if state.plan is None or state.model is None or state.global_batch is None:
            return ()
        job = planned(child_name(plan, state), (state.model, state.global_batch), state.plan)
        return children(plan, state, job)

    return manifests


def children(plan: PlanObject, state: PlanState, job: PlannedJob) -> tuple[Json, ...]:
    """Returns ConfigMap and JobSet of a revision; their names, labels and content depend on nothing else."""
    files, job_set = kubernetes.config_map(job), kubernetes.job_set(job)
    labels = job_set["metadata"]["labels"]
    labels.pop(QUEUE)
    if queue := plan.spec.get("queue"):
        labels[QUEUE] = queue
    for one in job_set["spec"]["replicatedJobs"]:
        for container in one["template"]["spec"]["template"]["spec"]["containers"]:
            container["image"] = plan.spec.get("image", kubernetes.IMAGE)
    return tuple(_owned(one, plan, state) for one in (files, job_set))


def _owned(manifest: Json, plan: PlanObject, state: PlanState) -> Json:
    content = {name: value for name, value in manifest.items() if name != "metadata"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
    head = manifest["metadata"]
    labels = {
        **head.get("labels", {}), OWNER: plan.uid, "twin.local/revision": str(state.revision),
        "app.kubernetes.io/managed-by": "twin-operator",
    }  # fmt: skip
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": plan.name, "uid": plan.uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {
        **manifest,
        "metadata": {
            "name": head["name"], "namespace": plan.namespace, "labels": labels,
            "annotations": {DIGEST: digest}, "ownerReferences": [owner],
        },
    }  # fmt: skip
