"""Kubernetes: a JobSet with a replicated job for each domain, its Kueue queue, and the plan as a resource.

Pods of a domain are held in it by node affinity, a pod is a node, and the processes of the plan find their
ranks by the launcher of torchrun's target, which a ConfigMap carries. `TrainingPlan` is a resource of its own
with an OpenAPI schema, so that the cluster knows and checks the plan itself. Sources: JobSet v1alpha2
(jobset.x-k8s.io), Kueue v1beta1, Kubernetes API conventions and CustomResourceDefinition v1.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from replay.export import rank_map, yaml_text
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from replay.export.rank_map import HostNode
from replay.export.targets import torchrun
from replay.export.targets.slurm import components
from replay.export.targets.training_plan import definition, resource

ZONE = "topology.kubernetes.io/region"
"""Label by which nodes say their domain; another one can take its place."""
LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Values that labels of Kubernetes may have."""
IMAGE = "IMAGE-WITH-PYTORCH"
PORT = 29500
START = """set -eu
cp /plan/* /job/ && cd /job
export MASTER_ADDR={master} MASTER_PORT={port}
NODES=({hosts})
exec bash ./launch.sh "${{NODES[$JOB_COMPLETION_INDEX]}}"
"""


class KubernetesTarget:
    """JobSet, Kueue objects, and the TrainingPlan resource."""

    name = "kubernetes"
    about = "Kubernetes: JobSet with a job a domain, Kueue queue and flavours, TrainingPlan resource"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that its pods cannot run."""
        return torchrun.TorchrunTarget().difference(job) or whole_nodes(job)

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns the manifests; the ConfigMap has the files of torchrun's target."""
        return {
            "trainingplan-crd.yaml": _text(definition()),
            "trainingplan.yaml": _text(resource(job)),
            "jobset.yaml": _text(config_map(job), job_set(job)),
            "kueue.yaml": _text(*queue(job)),
        }

    def start(self, job: PlannedJob) -> str:
        """Returns how to apply the manifests."""
        labels = node_labels(job)
        sites = ", ".join(f"`{value}`" for value in dict.fromkeys(labels[s.domain] for s in job.plan.shares))
        return (
            f"Nodes of each domain carry the label `{ZONE}` with its name ({sites}), pods of all domains can "
            f"reach each other by host name, JobSet and Kueue are installed. Put your image for `{IMAGE}` in "
            "`jobset.yaml`; it needs PyTorch 2.6 or later.\n\n"
            "    kubectl apply -f trainingplan-crd.yaml\n    kubectl apply -f trainingplan.yaml\n"
            "    kubectl apply -f kueue.yaml\n    kubectl apply -f jobset.yaml\n\n"
            "Without Kueue leave out `kueue.yaml` and the label `kueue.x-k8s.io/queue-name`."
        )


def whole_nodes(job: PlannedJob) -> Difference | None:
    """The pods of a replicated job are alike: as many GPUs on each node of a domain."""
    for site, nodes in components(job):
        counts = [len(node.gpus) for node in nodes]
        if len(set(counts)) > 1:
            return Difference(
                f"nodes of {site} with {', '.join(map(str, counts))} GPUs",
                "all pods of a replicated job are alike", "plan with whole nodes", None,
            )  # fmt: skip
    return None


def name_of(job: PlannedJob) -> str:
    """Returns the name of the objects."""
    return rank_map.job_name(job)


def node_labels(job: PlannedJob) -> tuple[str, ...]:
    """Returns the value that labels the nodes of each domain: its name where a label may have it."""
    names = rank_map.sites(job)
    return tuple(
        domain.name if LABEL.fullmatch(domain.name) else name
        for domain, name in zip(job.domains, names, strict=True)
    )


def config_map(job: PlannedJob) -> dict[str, Any]:
    """Returns the files of torchrun's target as a ConfigMap."""
    files = torchrun.TorchrunTarget().files(job)
    data = {name: text if isinstance(text, str) else text.decode() for name, text in files.items()}
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name_of(job)}-files"}, "data": data,
    }  # fmt: skip


def job_set(job: PlannedJob) -> dict[str, Any]:
    """Returns the JobSet: one replicated job a domain, all started and restarted together."""
    found = components(job)
    name = name_of(job)
    master = f"{name}-{found[0][0]}-0-0.{name}"
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": name}},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "failurePolicy": {"maxRestarts": 3},
            "successPolicy": {"operator": "All"},
            "replicatedJobs": [
                {"name": site, "replicas": 1, "template": {"spec": _job(job, site, nodes, master)}}
                for site, nodes in found
            ],
        },
    }


def _job(job: PlannedJob, site: str, nodes: Sequence[HostNode], master: str) -> dict[str, Any]:
    domain = _domain(job, site)
    gpus, hosts = len(nodes[0].gpus), " ".join(node.host for node in nodes)
    region = {"key": ZONE, "operator": "In", "values": [node_labels(job)[domain]]}
    container = {
        "name": "train",
        "image": IMAGE,
        "command": ["bash", "-c", START.format(master=master, port=PORT, hosts=hosts)],
        "ports": [{"containerPort": PORT}],
        "resources": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}},
        "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": ",".join(map(str, range(gpus)))}],
        "volumeMounts": [
            {"name": "plan", "mountPath": "/plan"}, {"name": "work", "mountPath": "/job"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }  # fmt: skip
    terms = {"nodeSelectorTerms": [{"matchExpressions": [region]}]}
    return {
        "parallelism": len(nodes),
        "completions": len(nodes),
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {
            "metadata": {"labels": {"plan": name_of(job), "domain": site}},
            "spec": {
                "restartPolicy": "Never",
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
                "containers": [container],
                "volumes": [
                    {"name": "plan", "configMap": {"name": f"{name_of(job)}-files"}},
                    {"name": "work", "emptyDir": {}},
                    {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
                ],
            },
        },
    }


def queue(job: PlannedJob) -> tuple[dict[str, Any], ...]:
    """Returns a flavour for each domain, a cluster queue with exactly the GPUs of the plan, a local queue."""
    name, flavours, quotas = name_of(job), [], []
    for site, nodes in components(job):
        flavour = f"{name}-{site}"
        flavours.append(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor",
                "metadata": {"name": flavour},
                "spec": {"nodeLabels": {ZONE: node_labels(job)[_domain(job, site)]}},
            }
        )  # fmt: skip
        quota = {"name": "nvidia.com/gpu", "nominalQuota": sum(len(node.gpus) for node in nodes)}
        quotas.append({"name": flavour, "resources": [quota]})
    covered = {"coveredResources": ["nvidia.com/gpu"], "flavors": quotas}
    cluster = {"namespaceSelector": {}, "resourceGroups": [covered]}
    return (
        *flavours,
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": cluster,
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name},
        },
    )  # fmt: skip


def _domain(job: PlannedJob, site: str) -> int:
    return rank_map.sites(job).index(site)


def _text(*documents: dict[str, Any]) -> str:
    return yaml_text.dump(*documents, width=110)
