"""Figures of a plan over a record: speed, parts of an iteration, memory, money, energy, what binds it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.core.units import GB, GIB, NS_PER_S
from policy.control.horizon import Horizon, per_iteration
from policy.control.knobs import KnobTuner
from policy.control.long_run import LongRunRates
from policy.control.relayed_times import time_ns
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Decision
from replay.planning.record import SAMPLES, Record, view_of
from twin.core.domain import LinkState
from twin.core.plan import Plan, to_json
from twin.estimation.iteration_estimate import IterationEstimate
from twin.estimation.link_state_times import States

DAY_S = 86_400.0
MONTH_DAYS = 30
SHARES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """A plan with its figures over a record; `estimate` and the seconds are those of the median state, with
    the knobs that are best there. Money and energy are for the mean rate over the record."""

    plan: Plan
    found_by: str
    tokens_per_s: tuple[float, float, float]  # exceeded in 90, 50 and 10 % of the record
    mean_tokens_per_s: float
    utilisation: float  # mean share of the time in which the domains of the plan compute
    iteration_s: float
    compute_s: float
    exposed_comm_s: float
    bubble_s: float
    headroom_bytes: int  # least over the stages
    egress_usd_per_day: float
    gpu_usd_per_day: float
    energy_kwh_per_day: float
    binding: str
    estimate: IterationEstimate

    @property
    def usd_per_million_tokens(self) -> float:
        """Egress and rental of the GPUs in use."""
        return (self.egress_usd_per_day + self.gpu_usd_per_day) / (self.mean_tokens_per_s * DAY_S) * 1e6

    def to_json(self) -> dict[str, Any]:
        """An element of `plans` in `twin.plan/1`."""
        own = {name: getattr(self, name) for name in self.__slots__ if name not in ("plan", "estimate")}
        own["tokens_per_s"] = dict(zip(("p10", "p50", "p90"), self.tokens_per_s, strict=True))
        month = {"egress_usd_per_month": MONTH_DAYS * self.egress_usd_per_day}
        traffic = {"wan_gb_per_iteration": float(self.estimate.wan_bytes.sum() / GB)}
        more = {
            "headroom_gib": self.headroom_bytes / GIB, "usd_per_million_tokens": self.usd_per_million_tokens
        }  # fmt: skip
        return {"plan": to_json(self.plan), **own, **month, **traffic, **more}


def figures(record: Record, plan: Plan, found_by: str) -> PlanFigures | None:
    """Returns the figures of a plan; None where it never runs."""
    estimator, states = record.estimator, record.sampled(SAMPLES)
    plan, rates = LongRunRates(estimator, states, relayed=record.relayed).turned_in_each(plan)
    if not rates.any():
        return None
    typical = int(np.argsort(rates, kind="stable")[len(rates) // 2])
    links = LinkState(states.bandwidth_bps[typical], states.latency_s[typical])
    turned = _turned(record, plan, links)
    one = estimator.iteration(turned, links)
    iter_s = time_ns(estimator, turned, links) / NS_PER_S
    compute_s = one.iter_s - one.exposed_comm_s - one.bubble_s
    tokens, per_day = estimator.tokens(plan), float(rates.mean()) * DAY_S
    low, middle, high = (float(x) for x in np.quantile(rates, SHARES) * tokens)
    memory = [estimator.cluster.domains[slot.domain].gpu.memory_bytes for slot in estimator.stage_slots(plan)]
    return PlanFigures(
        plan=plan,
        found_by=found_by,
        tokens_per_s=(low, middle, high),
        mean_tokens_per_s=float(rates.mean()) * tokens,
        utilisation=per_iteration(estimator, plan, None)[0] * float(rates.mean()),
        iteration_s=iter_s,
        compute_s=compute_s,
        exposed_comm_s=iter_s - compute_s - one.bubble_s,
        bubble_s=one.bubble_s,
        headroom_bytes=min(
            have - need for have, need in zip(memory, estimator.peak_mem_bytes(plan), strict=True)
        ),
        egress_usd_per_day=one.usd * per_day,
        gpu_usd_per_day=one.gpu_usd / one.iter_s * DAY_S,
        energy_kwh_per_day=one.energy_j * per_day / 3.6e6,
        binding=one.binding,
        estimate=one,
    )


def _turned(record: Record, plan: Plan, links: LinkState) -> Plan:
    """Returns the plan with the relays and the warm-up depth that are best under these links."""
    one = States.of([links])
    horizon = Horizon(np.array([0.0, 1.0]), one, one)
    objective = Objective((1.0, 0.0, 0.0), PlanOutcome(1.0, 0.0, 0.0))
    decision = KnobTuner(record.context()).tune(
        Decision(plan, "planned"), view_of(record, links), horizon, objective
    )
    return decision.plan or plan
