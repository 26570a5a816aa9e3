"""Where plans come from: a search of our own over a scenario, or a running `twin serve`.

Both know the cluster and the models from a scenario, which has to be that of the service.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S
from policy.search.plan_search import best_plans
from replay.export import contract
from replay.export.planned_job import PlannedJob
from replay.export.targets.kubernetes import KubernetesTarget
from replay.store.decision_codec import plan_from_json, plan_to_json
from service.operator.plan_object import Json, PlanObject
from service.operator.reconcile import AdvisedPlan
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import DEAD, Estimator
from twin.scenario import cluster_and_jobs
from twin.scenario.prepare import Scenario, cost_models
from twin.settings.plan_document import received_plan


class PlanCatalogue:
    """Domains and models of a scenario: how plans are read, counted, and made into what pods can run."""

    def __init__(self, scenario: Scenario, store: Path, links: LinkState | None = None) -> None:
        self.scenario, self.links = scenario, links
        self._own = cost_models(scenario, store)
        self.domains = tuple(domain.name for domain in self._own.cluster.domains)
        self.estimator = lru_cache(16)(self._estimator)

    def _estimator(self, job: tuple[str, int]) -> Estimator:
        settings = self.scenario.job.model_copy(update={"global_batch": job[1]})
        spec = cluster_and_jobs.job(self.scenario, job[0], settings)
        return Estimator(
            self._own.cluster, spec, restart_s=self.scenario.moving.restart_s, compute=self._own.compute
        )

    def planned(self, name: str, job: tuple[str, int], plan: Json) -> PlannedJob:
        """Returns a plan with its job, for what writes its files."""
        found = _plan(plan)
        return PlannedJob(name, "a TrainingPlan", self.estimator(job), found, self.links)

    def written(self, plan: PlanObject) -> Json:
        """Returns the plan of the specification.

        Raises:
            InputError, UsageError: it names unknown domains or models, is none, or Kubernetes cannot run it.
        """
        estimator = self.estimator(plan.job)
        switches = {"p2p": estimator.job.p2p, "sequence_parallel": estimator.job.sequence_parallel}
        found = plan.plan(self.domains, **switches)
        received_plan(found, source=f"{plan.name}: the plan")
        job = self.planned(plan.name, plan.job, found)
        if problems := job.estimator.problem_texts(job.plan):
            raise UsageError(f"{plan.name}: the plan cannot run: {'; '.join(problems)}")
        contract.fitted(KubernetesTarget(), job, nearest=False)
        return _json(job.plan)

    def counts(self, plan: Json) -> dict[str, int]:
        """Returns the GPUs of a plan by domain."""
        return {self.domains[share["domain"]]: len(share["gpus"]) for share in plan["shares"]}

    def free(self, gpus: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the GPUs of every domain of the scenario that nodes have, at most its own."""
        domains = self._own.cluster.domains
        return tuple(min(domain.gpus, gpus.get(domain.name, 0)) for domain in domains)

    def expressed(self, job: tuple[str, int], plan: Plan) -> Plan | None:
        """Returns the plan, or the nearest that pods can run; None: there is none that fits."""
        planned = PlannedJob("plan", "a search", self.estimator(job), plan, self.links)
        try:
            fitted = contract.fitted(KubernetesTarget(), planned, nearest=True).job
        except UsageError:
            return None
        return None if fitted.estimator.problems(fitted.plan) else fitted.plan


class ScenarioPlanner(PlanCatalogue):
    """Plans of our own search under given links, which stay as they are."""

    def __init__(self, scenario: Scenario, store: Path, links: LinkState) -> None:
        super().__init__(scenario, store, links)
        self._links = links

    def ask(self, job: tuple[str, int], gpus: Mapping[str, int], given: Json | None) -> AdvisedPlan:
        """Returns the fastest of the first plans that pods can run."""
        estimator = self.estimator(job)
        free = self.free(gpus)
        for plan, _ in best_plans(estimator, self._links, free_gpus=free, top=8):
            fitted = self.expressed(job, plan)
            if fitted is not None:
                return AdvisedPlan(_json(fitted), self._seconds(job, fitted), self._given_s(job, given))
        return AdvisedPlan(None, None, self._given_s(job, given), "no plan that pods can run")

    def _given_s(self, job: tuple[str, int], given: Json | None) -> float | None:
        return None if given is None else self._seconds(job, _plan(given))

    def _seconds(self, job: tuple[str, int], plan: Plan) -> float | None:
        ns = self.estimator(job).iter_ns(plan, self._links)
        return None if ns == DEAD else ns / NS_PER_S


class ServicePlanner(PlanCatalogue):
    """Plans of a `twin serve` for the links that it sees now; the scenario knows domains and models."""

    def __init__(
        self, scenario: Scenario, store: Path, url: str, token: str | None = None, timeout_s: float = 10.0
    ) -> None:
        super().__init__(scenario, store)
        self.url, self.timeout_s = url.rstrip("/"), timeout_s
        self._head = {"Content-Type": "application/json"}
        if token is not None:
            self._head["Authorization"] = f"Bearer {token}"

    def ask(self, job: tuple[str, int], gpus: Mapping[str, int], given: Json | None) -> AdvisedPlan:
        """Returns the plan of the service, or the nearest to it that pods can run.

        Raises:
            NotFoundError: the service does not answer. UsageError: it refuses the question.
        """
        answer = self._asked(job, gpus, given)
        given_s, best = answer["given_iteration_s"], answer["alone"]
        if best is None:
            return AdvisedPlan(None, None, given_s, answer["reason"])
        plan = _plan(best["plan"])
        fitted = self.expressed(job, plan)
        if fitted is None:
            return AdvisedPlan(None, None, given_s, "pods cannot run the plan of the service")
        seconds = best["iteration_s"]
        if fitted != plan:
            seconds = self._asked(job, gpus, _json(fitted))["given_iteration_s"]
        return AdvisedPlan(_json(fitted), seconds, given_s)

    def _asked(self, job: tuple[str, int], gpus: Mapping[str, int], given: Json | None) -> Json:
        free = dict(zip(self.domains, self.free(gpus), strict=True))
        body = {"model": job[0], "job": {"global_batch": job[1]}, "gpus": free, "plan": given}
        request = Request(f"{self.url}/v1/admission", json.dumps(body).encode(), self._head)
        try:
            with urlopen(request, timeout=self.timeout_s) as answer:
                found: Json = json.load(answer)
                return found
        except HTTPError as error:
            message = error.read().decode(errors="replace")[:300]
            if error.code >= 500:
                raise NotFoundError(f"{self.url}: {error.code}: {message}") from error
            raise UsageError(f"{self.url}: {error.code}: {message}") from error
        except (URLError, TimeoutError, ValueError) as error:
            raise NotFoundError(f"{self.url} does not answer: {error}") from error


def _plan(value: Json) -> Plan:
    found = plan_from_json(value)
    if found is None:
        raise UsageError("there is no plan")
    return found


def _json(plan: Plan) -> Json:
    """The plan as it comes back from JSON: what is stored in a status is compared with it."""
    found: Any = json.loads(json.dumps(plan_to_json(plan)))
    return dict(found)
