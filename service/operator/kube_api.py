"""The few requests to a Kubernetes API server that the operator makes, over HTTP and nothing else.

Objects are written by server-side apply as field manager `twin-operator`, so that writing twice is writing
once. Sources: Kubernetes API concepts; "Server-Side Apply".
"""

import json
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from ingest.core.errors import InputError, NotFoundError, UsageError
from replay.export.targets.training_plan import GROUP, KIND, PLURAL, VERSION
from service.operator.cluster_view import OWNER, ChildObject, ClusterView, child_of, gpus_by_domain
from service.operator.plan_object import Json, PlanObject
from service.operator.reconcile import Action, ApplyChild, DeleteChild, SetStatus

MANAGER = "twin-operator"
log = logging.getLogger("twin.operator")
PLANS = f"/apis/{GROUP}/{VERSION}"
FOLDERS: Mapping[str, tuple[str, str]] = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
}
"""Group and plural of every kind of child."""


@dataclass(frozen=True, slots=True)
class KubeApi:
    """An API server at `server`. `headers` carry the authorisation; `zone` labels the domain of a node."""

    server: str
    zone: str
    headers: Mapping[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = None
    timeout_s: float = 20.0

    def plan(self, namespace: str, name: str) -> PlanObject | None:
        """Returns the TrainingPlan as it is now; None: it is gone."""
        found = self._ask("GET", _path(PLANS, namespace, PLURAL, name), missing=True)
        return None if found is None else PlanObject.of(found)

    def plans(self) -> list[PlanObject]:
        """Returns the TrainingPlans of all namespaces; what is none is logged and left out."""
        found: list[PlanObject] = []
        for one in self._list(f"{PLANS}/{PLURAL}"):
            try:
                found.append(PlanObject.of(one))
            except InputError as error:
                log.error("a TrainingPlan is left out: %s", error)
        return found

    def view(self, plan: PlanObject) -> ClusterView:
        """Returns nodes and the children of a TrainingPlan."""
        labelled = urlencode({"labelSelector": f"{OWNER}={plan.uid}"})
        children: list[ChildObject] = []
        for kind, (group, plural) in FOLDERS.items():
            path = f"{_path(group, plan.namespace, plural)}?{labelled}"
            children += [child_of(kind, one) for one in self._list(path)]
        return ClusterView(gpus_by_domain(self._list("/api/v1/nodes"), self.zone), tuple(children))

    def act(self, plan: PlanObject, action: Action) -> None:
        """Carries an action out; one that was carried out before changes nothing.

        Raises:
            UsageError: the server refuses it. NotFoundError: it does not answer.
        """
        if isinstance(action, DeleteChild):
            group, plural = FOLDERS[action.kind]
            how = {"propagationPolicy": "Background"}
            self._ask("DELETE", _path(group, plan.namespace, plural, action.name), how, missing=True)
        elif isinstance(action, ApplyChild):
            group, plural = FOLDERS[action.manifest["kind"]]
            self._apply(
                _path(group, plan.namespace, plural, action.manifest["metadata"]["name"]), action.manifest
            )
        elif isinstance(action, SetStatus):
            head = {"name": plan.name, "namespace": plan.namespace, "uid": plan.uid}
            body: Json = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": head}
            before, state = plan.state, action.state
            if before is None or not before.since or bool(before.fault) != bool(state.fault):
                state = replace(state, since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            else:
                state = replace(state, since=before.since)
            path = _path(PLANS, plan.namespace, PLURAL, plan.name)
            self._apply(f"{path}/status", {**body, "status": state.to_status()})

    def _apply(self, path: str, body: Json) -> None:
        words = urlencode({"fieldManager": MANAGER, "force": "true"})
        # A status or a child of a plan that is gone by now is no fault: the collector has it.
        self._ask("PATCH", f"{path}?{words}", body, kind="application/apply-patch+yaml", missing=True)

    def _list(self, path: str) -> list[Json]:
        found = self._ask("GET", path) or {}
        items = found.get("items")
        return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []

    def _ask(
        self, method: str, path: str, body: Json | None = None, *, kind: str = "application/json",
        missing: bool = False,
    ) -> Json | None:  # fmt: skip
        data = None if body is None else json.dumps(body).encode()
        head = {**self.headers, "Accept": "application/json", "Content-Type": kind}
        request = Request(self.server + path, data, head, method=method)
        try:
            with urlopen(request, timeout=self.timeout_s, context=self.context) as answer:
                found: Any = json.load(answer)
                return dict(found)
        except HTTPError as error:
            if error.code == 404 and missing:
                return None
            message = error.read().decode(errors="replace")[:300]
            raise UsageError(
                f"API server: {method} {path.partition('?')[0]}: {error.code} {message}"
            ) from error
        except (OSError, HTTPException, ValueError) as error:  # no connection, half an answer, no JSON
            raise NotFoundError(f"API server {self.server} does not answer: {error}") from error


def _path(group: str, namespace: str, plural: str, name: str | None = None) -> str:
    path = f"{group}/namespaces/{quote(namespace)}/{plural}"
    return path if name is None else f"{path}/{quote(name)}"
