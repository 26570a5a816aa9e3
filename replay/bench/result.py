"""Results of a benchmark by world, scenario and in all; every figure is derived from the outcomes of runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policy.bound.bound import Bound
from replay.bench.cells import RunOutcome
from replay.bench.comparison import bound_to_json
from replay.bench.fronts import Front
from replay.bench.load import LoadStability, load_stability
from replay.bench.paired_statistics import Versus, average, interquartile, time_per_token, tokens, versus
from replay.bench.world import BenchWorld
from twin.scenario.prepare import Scenario

Json = dict[str, Any]
BASES = ("mpc", "static")
"""Policies that all others are compared with, where they ran."""


@dataclass(frozen=True, slots=True)
class WorldResult:
    """One world with the outcomes of all policies (in their order) and the bound."""

    world: BenchWorld
    outcomes: tuple[RunOutcome, ...]
    bound: Bound | None

    @property
    def wall_s(self) -> float:
        """Seconds of the window, from any run in this world."""
        return next(outcome.kpis.wall_s for outcome in self.outcomes if outcome.kpis)

    def to_json(self, policies: Sequence[str]) -> Json:
        """Returns seed, level of noise, the bound, and a row a policy."""
        return {
            "seed": self.world.seed,
            "clip": self.world.clip,
            "load": self.world.load,
            "bound": None if self.bound is None else bound_to_json(self.bound, self.wall_s),
            "rows": [
                {
                    "policy": policy,
                    "run": outcome.run_id,
                    "problem": outcome.problem,
                    "kpis": None if outcome.kpis is None else outcome.kpis.to_json(),
                    "regret": regret(outcome, self.bound),
                }
                for policy, outcome in zip(policies, self.outcomes, strict=True)
            ],
        }


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """Results of one scenario; `worlds` are those without added noise or load, one a seed."""

    scenario: Scenario
    policies: tuple[str, ...]
    worlds: tuple[WorldResult, ...]
    noisy: dict[float, tuple[WorldResult, ...]]  # by level of noise, for seeds of `worlds`
    front: Front | None
    loads: dict[float, tuple[WorldResult, ...]] = field(default_factory=dict)  # by load, as `noisy`

    @property
    def dataset(self) -> str:
        """Data set of the links; "-" where nothing ran."""
        return next((o.dataset for played in self.worlds for o in played.outcomes if o.dataset), "-")

    @property
    def note(self) -> str:
        """Modelling steps from measurements to links, of the first seed."""
        return next((o.note for played in self.worlds for o in played.outcomes if o.note), "")

    def of(self, policy: str, worlds: Sequence[WorldResult] | None = None) -> list[RunOutcome]:
        """Returns the outcomes of one policy, a world each."""
        index = self.policies.index(policy)
        return [played.outcomes[index] for played in (self.worlds if worlds is None else worlds)]

    def policy_summary(self, policy: str) -> Json:
        """Returns mean figures of a policy over its worlds, and its comparison with each base."""
        outcomes = self.of(policy)
        ran = [(o, o.kpis) for o in outcomes if o.kpis is not None]
        times = [time_per_token(o) for o, _ in ran]
        middle = average(times) and float(interquartile(np.array(times)))
        regrets = [regret(o, played.bound) for o, played in zip(outcomes, self.worlds, strict=True) if o.kpis]
        slowest = [k.decision_p99_s for _, k in ran if k.decision_p99_s is not None]
        coordination = [k.coordination_max_s for _, k in ran if k.coordination_max_s is not None]
        return {
            "policy": policy,
            "worlds": len(ran),
            "problem": next((o.problem for o in outcomes if o.problem), None),
            "time_per_token_s": average(times),
            "time_per_token_middle_s": middle,
            "utilisation": average([k.utilisation for _, k in ran]),
            "utilisation_owned": average([k.utilisation_owned for _, k in ran]),
            "usd_per_token": average([k.usd_per_token for _, k in ran]),
            "tokens_per_s": average([k.tokens_per_s for _, k in ran]),
            "mfu": average([k.mfu for _, k in ran]),
            "total_usd_per_token": average([k.total_usd_per_token for _, k in ran]),
            "rent_usd_per_token": average([k.rent_usd_per_token for _, k in ran]),
            "unpriced": list(dict.fromkeys(site for _, k in ran for site in k.unpriced)),
            "wan_p95_bps": average([k.wan_p95_bps for _, k in ran]),
            "moves": average([float(k.moves) for _, k in ran]),
            "load_stability": min((k.load_stability for _, k in ran), default=None),
            "fallbacks": sum(k.fallbacks for _, k in ran),
            "decision_p99_s": max(slowest, default=None),
            "coordination_max_s": max(coordination, default=None),
            "regret": average(regrets),
            "versus": [v.to_json() for v in self.versus(policy)],
        }

    def limits(self) -> dict[str, float | None]:
        """Returns mean seconds per token over the worlds that have a bound: of the bound, of the best plan
        that is never left and turns its knobs, of the ceiling proven over a plan space (None where none was),
        and of GPUs that never wait."""
        known = [(p.bound, p.wall_s) for p in self.worlds if p.bound is not None]
        return {
            "bound": average([wall / b.tokens for b, wall in known if b.tokens]),
            "best kept plan": average([wall / b.kept_tokens for b, wall in known if b.kept_tokens]),
            "ceiling": average([wall / b.ceiling_tokens for b, wall in known if b.ceiling_tokens]),
            "capacity": average([wall / b.capacity_tokens for b, wall in known]),
        }

    def versus(self, policy: str) -> Iterator[Versus]:
        """Compares a policy with each base that ran and is another policy."""
        for base in BASES:
            if base in self.policies and base != policy:
                found = self.against(policy, base)
                if found is not None:
                    yield found

    def against(self, policy: str, base: str) -> Versus | None:
        """Compares two policies in the worlds where both ran; None without one."""
        return versus(base, self.of(policy), self.of(base))

    def robustness(self) -> list[Json]:
        """Returns the share of time per token lost to each level of noise, against the same policy and seed
        without it: `median` and `worst` over seeds. A row of the bound follows the policies."""
        rows = []
        plain = {played.world.seed: played for played in self.worlds}
        for level, noised in self.noisy.items():
            same = [plain[played.world.seed] for played in noised]
            for policy in self.policies:
                pairs = zip(self.of(policy, same), self.of(policy, noised), strict=True)
                ratios = [
                    time_per_token(b) / time_per_token(a) - 1
                    for a, b in pairs
                    if a.kpis and b.kpis and tokens(a)
                ]
                rows.append(_spread(policy, level, ratios))
            bounds = [(a.bound, b.bound) for a, b in zip(same, noised, strict=True)]
            rows.append(
                _spread("bound", level, [a.tokens / b.tokens - 1 for a, b in bounds if a and b and b.tokens])
            )
        return rows

    def under_load(self) -> list[LoadStability]:
        """Returns a row for each load and policy that ran, lightest load first; none if the load was not
        varied."""
        if not self.loads:
            return []
        return [
            load_stability(policy, load, kpis)
            for load, worlds in sorted({1.0: self.worlds, **self.loads}.items())
            for policy in self.policies
            if (kpis := [outcome.kpis for outcome in self.of(policy, worlds) if outcome.kpis])
        ]

    def to_json(self) -> Json:
        """Returns the summaries, then the worlds they were computed from."""
        return {
            "scenario": self.scenario.name,
            "dataset": self.dataset,
            "note": self.note,
            "weights": list(self.scenario.weights.vector),
            "standings": [self.policy_summary(policy) for policy in self.policies],
            "limits": self.limits(),
            "robustness": self.robustness(),
            "load": [row.to_json() for row in self.under_load()],
            "front": None if self.front is None else self.front.to_json(),
            "worlds": [
                played.to_json(self.policies)
                for group in (self.worlds, *self.noisy.values(), *self.loads.values())
                for played in group
            ],
        }


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of `bench`."""

    policies: tuple[str, ...]
    seeds: int
    window: str
    scenarios: tuple[ScenarioResult, ...]
    notes: tuple[str, ...]

    def tally(self) -> list[Json]:
        """Returns wins, losses and ties over worlds, and verdicts over scenarios, of each pair."""
        rows = []
        for policy in self.policies:
            for base in BASES:
                found = [v for c in self.scenarios for v in c.versus(policy) if v.base == base]
                if found:
                    verdicts = [v.verdict for v in found]
                    rows.append({
                        "policy": policy, "base": base,
                        "wins": sum(v.wins for v in found), "losses": sum(v.losses for v in found),
                        "ties": sum(v.ties for v in found),
                        **{verdict: verdicts.count(verdict) for verdict in ("better", "equal", "worse")},
                    })  # fmt: skip
        return rows

    def to_json(self) -> Json:
        """Returns the object of `twin bench --json` for more than one world."""
        return {
            "schema": "twin.bench/1",
            "policies": list(self.policies),
            "seeds": self.seeds,
            "window": self.window,
            "notes": list(self.notes),
            "tally": self.tally(),
            "scenarios": [result.to_json() for result in self.scenarios],
        }


def regret(outcome: RunOutcome, bound: Bound | None) -> float | None:
    """Returns the share of the bound's tokens that a run did not train; None without a bound."""
    if not outcome.kpis or bound is None:
        return None
    return bound.regret(tokens(outcome), local_sgd=outcome.local_sgd)


def _spread(policy: str, clip: float, ratios: Sequence[float]) -> Json:
    """Returns median and worst of relative losses; None where a world has no tokens."""
    known = bool(ratios) and bool(np.isfinite(ratios).all())
    return {
        "policy": policy,
        "clip": clip,
        "worlds": len(ratios),
        "median": float(np.median(ratios)) if known else None,
        "worst": float(np.max(ratios)) if known else None,
    }
