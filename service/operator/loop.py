"""One visit of the operator to a TrainingPlan: read, decide, act; and what it is configured by."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ingest.core.errors import InputError, NotFoundError, UsageError
from replay.export.targets.kubernetes import ZONE
from replay.planning import record
from service.operator import reconcile
from service.operator.children import manifests_by
from service.operator.kube_api import KubeApi
from service.operator.planner import ScenarioPlanner, ServicePlanner
from twin.scenario.prepare import load

Planner = ScenarioPlanner | ServicePlanner
log = logging.getLogger("twin.operator")


def planner(environment: Mapping[str, str] = os.environ) -> Planner:
    """Returns the planner that the environment names: `TWIN_SCENARIO`, `TWIN_STORE`, and `TWIN_URL` with
    `TWIN_TOKEN_FILE` for a service.

    Raises:
        UsageError: no scenario. NotFoundError, InputError: it, or its links, are not there.
    """
    name = environment.get("TWIN_SCENARIO")
    if not name:
        raise UsageError("TWIN_SCENARIO: name the scenario of the cluster (its domains and models)")
    scenario, store = load(name), Path(environment.get("TWIN_STORE", ".twin"))
    url, token = environment.get("TWIN_URL"), environment.get("TWIN_TOKEN_FILE")
    if not url:
        return ScenarioPlanner(scenario, store, record.load(store, scenario).typical)
    secret = None if not token else Path(token).read_text(encoding="utf-8").strip()
    return ServicePlanner(scenario, store, url, secret)


def zone(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the label by which nodes say their domain."""
    return environment.get("TWIN_ZONE_LABEL", ZONE)


def visit(api: KubeApi, found: Planner, namespace: str, name: str) -> list[reconcile.Action]:
    """Returns what was done for a TrainingPlan; nothing where it is gone or all is well.

    Raises:
        NotFoundError: API server or service do not answer: come again. UsageError: the server refuses.
    """
    plan = api.plan(namespace, name)
    if plan is None:
        return []
    try:
        if not plan.deleting:
            plan.check()
        actions = reconcile.reconcile(plan, api.view(plan), found, manifests_by(found.planned))
    except NotFoundError:
        raise
    except (InputError, UsageError) as error:
        actions = reconcile.refused(plan, str(error))
    except Exception as error:  # a fault of ours: it must not keep the other plans from their visits
        log.exception("%s/%s", namespace, name)
        why = f"a fault of the operator, {type(error).__name__}: {error}; please report it"
        actions = reconcile.refused(plan, why, "InternalError")
    for action in actions:
        api.act(plan, action)
        log.info("%s/%s: %s", namespace, name, _words(action))
    return actions


def _words(action: reconcile.Action) -> str:
    if isinstance(action, reconcile.SetStatus):
        return f"revision {action.state.revision}, {action.state.phase}: {action.state.message}"
    if isinstance(action, reconcile.DeleteChild):
        return f"{action.kind} {action.name} deleted"
    return f"{action.manifest['kind']} {action.manifest['metadata']['name']} applied"
