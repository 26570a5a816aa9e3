"""What kopf runs: `kopf run -m service.operator.handlers --all-namespaces` (extra `operator`).

Every event leads to the same visit, which reads everything anew; kopf says when, not what. Nothing here keeps
a plan in memory, so a second start finds what the first one has left.
"""

import asyncio
import logging
import os
import ssl
from collections import defaultdict
from typing import Any

import kopf

from ingest.core.errors import NotFoundError, TwinError
from replay.export.targets.training_plan import GROUP, PLURAL, VERSION
from service.operator import loop
from service.operator.cluster_view import gpus_by_domain
from service.operator.kube_api import KubeApi

PERIOD_S = float(os.environ.get("TWIN_PERIOD_S", "60"))
RETRY_S = 15.0
log = logging.getLogger("twin.operator")


class Found:
    """Planner, client and locks of all handlers: kopf copies its memo for each object, not this."""

    def __init__(self, planner: loop.Planner) -> None:
        self.planner = planner
        self.api: KubeApi | None = None
        self.nodes: dict[str, dict[str, int]] = {}
        self.locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def visit(self, namespace: str, name: str) -> None:
        """Visits a TrainingPlan, one visit at a time.

        Raises:
            TemporaryError: nobody answers, or the server refuses; kopf comes again.
        """
        if self.api is None:
            raise kopf.TemporaryError("not logged in yet", delay=1)
        async with self.locks[namespace, name]:
            try:
                await asyncio.to_thread(loop.visit, self.api, self.planner, namespace, name)
            except NotFoundError as error:
                raise kopf.TemporaryError(str(error), delay=RETRY_S) from error
            except TwinError as error:
                raise kopf.TemporaryError(str(error), delay=4 * RETRY_S) from error


@kopf.on.startup()
async def begin(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Loads the scenario, and keeps kopf's own notes out of the status, whose fields the schema closes."""
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="twin.local")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="twin.local")
    settings.posting.enabled = False
    memo.found = Found(await asyncio.to_thread(loop.planner))


@kopf.on.login()
def login(memo: kopf.Memo, **words: Any) -> kopf.ConnectionInfo | None:
    """Returns the account of the pod, or that of a kubeconfig, for kopf and for our own requests."""
    info = kopf.login_with_service_account(**words) or kopf.login_with_kubeconfig(**words)
    if info is not None:
        memo.found.api = api_of(info)
    return info


def api_of(info: kopf.ConnectionInfo) -> KubeApi:
    """Returns our client with the server and the credentials of kopf's."""
    headers = {} if info.token is None else {"Authorization": f"{info.scheme or 'Bearer'} {info.token}"}
    context = None
    if info.server.startswith("https:"):
        context = ssl.create_default_context(cafile=info.ca_path)
        if info.certificate_path is not None:
            context.load_cert_chain(info.certificate_path, info.private_key_path)
    return KubeApi(info.server.rstrip("/"), loop.zone(), headers, context)


@kopf.on.timer(GROUP, VERSION, PLURAL, interval=PERIOD_S, initial_delay=PERIOD_S)
async def revisited(namespace: str | None, name: str | None, memo: kopf.Memo, **_: Any) -> None:
    """Looks again: links and speeds change without an event."""
    await memo.found.visit(namespace or "default", name or "")


@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL, field="spec")
@kopf.on.resume(GROUP, VERSION, PLURAL)
@kopf.on.delete(GROUP, VERSION, PLURAL, optional=True)
async def visited(namespace: str | None, name: str | None, memo: kopf.Memo, **_: Any) -> None:
    """Brings a TrainingPlan and its children to where they should be.

    Those of a deleted one are deleted at once; while no operator runs, the collector does it by their owner.
    """
    await memo.found.visit(namespace or "default", name or "")


@kopf.on.event("v1", "nodes")
async def node_changed(name: str | None, body: kopf.Body, memo: kopf.Memo, **event: Any) -> None:
    """Visits all TrainingPlans where a node came, went, or takes pods no longer; its heartbeats pass."""
    found, node, kind = memo.found, name or "", event["type"]
    gpus = {} if kind == "DELETED" else gpus_by_domain([dict(body)], loop.zone())
    before = found.nodes.get(node)
    found.nodes[node] = gpus
    if kind is None or before == gpus:  # None: the first listing, after which every plan is resumed
        return
    for plan in await asyncio.to_thread(found.api.plans):
        try:
            await found.visit(plan.namespace, plan.name)
        except (
            kopf.TemporaryError
        ) as error:  # its own visits come again; the other plans have lost nodes, too
            log.warning("%s/%s: %s", plan.namespace, plan.name, error)
