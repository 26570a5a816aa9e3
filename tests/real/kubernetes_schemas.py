"""Manifests of `twin export --to kubernetes`, held to the published schemas of Kubernetes.

    python -m tests.real.kubernetes_schemas FOLDER

FOLDER is an export. Needs `kubernetes-validate`, which has the schemas of every release. JobSet and Kueue are
no part of Kubernetes: of a JobSet the template of each job is checked, as the Job that it makes. The objects
of `configs/operations/kubernetes` are checked beside.
"""

import sys
from pathlib import Path

import kubernetes_validate
import yaml

from ingest.core import resources

RELEASES = ("1.30", "1.37")


def main(folder: Path) -> None:
    files, job_set = yaml.safe_load_all((folder / "jobset.yaml").read_text())
    objects = [files, yaml.safe_load((folder / "trainingplan-crd.yaml").read_text())]
    for one in job_set["spec"]["replicatedJobs"]:
        head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": one["name"]}}
        objects.append({**head, **one["template"]})
    operator = resources.configs("operations") / "kubernetes" / "operator.yaml"
    objects += yaml.safe_load_all(operator.read_text())
    for release in RELEASES:
        for one in objects:
            kubernetes_validate.validate(one, release, strict=True)
        kinds = ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in objects)
        print(f"Kubernetes {release}, strict: {kinds} are valid")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
