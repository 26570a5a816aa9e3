"""Figures of a plan over a record: speed, parts of an iteration, memory, money, energy, what binds it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ingest.core.units import GB, GIB, NS_PER_S
from policy.control.horizon import Horizon, per_iteration
from policy.control.knobs import KnobTuner
from policy.control.plan_rates import PlanRates
from policy.control.relayed_times import time_ns
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Decision
from replay.planning.held_knobs import held_rates
from replay.planning.record import SAMPLES, Record, view_of
from twin.core.domain import LinkState
from twin.core.plan import Plan, to_json
from twin.core.plan_text import plan_text
from twin.costs.wan_traffic import crossings
from twin.estimation.bottleneck import Bottleneck, bottleneck
from twin.estimation.iteration_estimate import IterationEstimate
from twin.estimation.link_state_times import States
from twin.estimation.training_cost import DAY_S, JOULES_PER_KWH, TrainingCost, of_iteration

MONTH_DAYS = 30
INTERNAL = ("plan", "running", "links", "estimate", "binding_link", "iteration_cost", "limits")
"""Fields that the JSON object has in another form, or not at all."""
LEAST_GAIN = 1e-3
"""Share of speed below which no link binds: links are measured no better."""
SHARES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """A plan with its figures over a record.

    `estimate`, the seconds and `binding` are those of the median state `links`, with the knobs that are best
    there (`running`); so are `binding_link`, on which twice the bandwidth gains most, and the share of speed
    that this gains. Money and energy are for the mean rate over the record, those of
    `iteration_cost` for one iteration. `limits`: what is saved in the median state without each resource.
    """

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
    binding_link: tuple[int, int] | None  # None: no link slows it
    binding_gain: float
    running: Plan
    links: LinkState
    estimate: IterationEstimate
    iteration_cost: TrainingCost
    limits: Bottleneck

    @property
    def cost(self) -> TrainingCost:
        """The cost of a day at the mean rate over the record."""
        one, tokens = self.iteration_cost, self.mean_tokens_per_s * DAY_S
        share = tokens / one.tokens
        return replace(
            one, tokens=tokens, seconds=DAY_S, rent_usd=self.gpu_usd_per_day,
            egress_usd=self.egress_usd_per_day, energy_j=self.energy_kwh_per_day * JOULES_PER_KWH,
            model_flops=None if one.model_flops is None else one.model_flops * share,
            peak_flops=None if one.peak_flops is None else one.peak_flops / one.seconds * DAY_S,
        )  # fmt: skip

    @property
    def usd_per_million_tokens(self) -> float:
        """Egress and rental of the GPUs in use."""
        return self.cost.total_usd / self.cost.tokens * 1e6

    def training(self, tokens: float) -> dict[str, Any]:
        """Days and dollars of training so many tokens at the mean rate over the record, and days at the
        rates that are exceeded in 90 and 10 % of it."""
        whole = self.cost.of(tokens)
        assert whole is not None, "a plan of an answer trains"
        slow, fast = self.tokens_per_s[0], self.tokens_per_s[2]
        return {
            "tokens": tokens,
            "days": whole.seconds / DAY_S,
            "days_p10": tokens / slow / DAY_S if slow > 0 else None,
            "days_p90": tokens / fast / DAY_S if fast > 0 else None,
            "usd": {"total": whole.total_usd, "rent": whole.rent_usd, "egress": whole.egress_usd},
            "energy_kwh": whole.energy_j / JOULES_PER_KWH,
            "gpus_without_price": list(whole.unpriced),
        }

    def to_json(self, names: Sequence[str], tokens: float | None = None) -> dict[str, Any]:
        """An element of `plans` in `twin.plan/1`; `names` of the sites, `tokens` to be trained."""
        own = {name: getattr(self, name) for name in self.__slots__ if name not in INTERNAL}
        own["tokens_per_s"] = dict(zip(("p10", "p50", "p90"), self.tokens_per_s, strict=True))
        month = {"egress_usd_per_month": MONTH_DAYS * self.egress_usd_per_day}
        traffic = {"wan_gb_per_iteration": float(self.estimate.wan_bytes.sum() / GB)}
        link = None if self.binding_link is None else [names[end] for end in self.binding_link]
        more = {
            "binding_link": link,
            "headroom_gib": self.headroom_bytes / GIB,
            "usd_per_million_tokens": self.usd_per_million_tokens,
            "cost": self.cost.to_json(),
            "limit": self.limits.to_json(),
            "text": plan_text(self.plan, names),
            **({} if tokens is None else {"training": self.training(tokens)}),
        }
        return {"plan": to_json(self.plan), **own, **month, **traffic, **more}


def figures(record: Record, plan: Plan, found_by: str) -> PlanFigures | None:
    """Returns the figures of a plan; None where it never runs."""
    estimator, states = record.estimator, record.sampled(SAMPLES)
    plan, rates = held_rates(record, plan, SAMPLES)
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
    link, gain = _binding_link(record, plan, links)
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
        energy_kwh_per_day=one.energy_j * per_day / JOULES_PER_KWH,
        binding=one.binding,
        binding_link=link,
        binding_gain=gain,
        running=turned,
        links=links,
        estimate=one,
        iteration_cost=of_iteration(estimator, plan, one),
        limits=bottleneck(estimator, turned, links),
    )


def _binding_link(record: Record, plan: Plan, links: LinkState) -> tuple[tuple[int, int] | None, float]:
    """Returns the link of a plan on which twice the bandwidth, both ways, gains most, and the share of speed
    gained."""
    pairs = list(dict.fromkeys((min(a, b), max(a, b)) for a, b in crossings(record.estimator.job, plan)))
    if not pairs:
        return None, 0.0
    bandwidth = np.repeat(links.bandwidth_bps[None], len(pairs) + 1, axis=0)
    for n, (i, j) in enumerate(pairs):
        bandwidth[n, [i, j], [j, i]] *= 2
    states = States(bandwidth, np.repeat(links.latency_s[None], len(pairs) + 1, axis=0))
    rates = PlanRates(record.estimator, record.relayed)(plan, states)
    gains = rates[:-1] / rates[-1] - 1
    best = int(gains.argmax())
    return (pairs[best], float(gains[best])) if gains[best] > LEAST_GAIN else (None, 0.0)


def _turned(record: Record, plan: Plan, links: LinkState) -> Plan:
    """Returns the plan with the relays and the warm-up depth that are best under these links."""
    one = States.of([links])
    horizon = Horizon(np.array([0.0, 1.0]), one, one)
    objective = Objective((1.0, 0.0, 0.0), PlanOutcome(1.0, 0.0, 0.0))
    decision = KnobTuner(record.context()).tune(
        Decision(plan, "planned"), view_of(record, links), horizon, objective
    )
    return decision.plan or plan
