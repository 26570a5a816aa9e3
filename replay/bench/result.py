"""What a benchmark found: worlds, chapters, the tally; every figure derived from the outcomes of runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policy.bound.bound import Bound
from replay.bench.fronts import Front
from replay.bench.load import steadiness
from replay.bench.cells import Outcome
from replay.bench.paired_statistics import Versus, average, interquartile, time_per_token, tokens, versus
from replay.bench.bench_world import World
from replay.bench.comparison import bound_to_json
from twin.scenario.prepare import Scenario, Window

Json = dict[str, Any]
BASES = ("mpc", "static")
"""Whom everybody is compared with, where they took part."""


@dataclass(frozen=True, slots=True)
class Played:
    """One world with the outcomes of all policies (in their order) and the bound."""

    world: World
    outcomes: tuple[Outcome, ...]
    bound: Bound | None

    @property
    def wall_s(self) -> float:
        """Seconds of the window; of a world in which somebody ran."""
        return next(outcome.kpis.wall_s for outcome in self.outcomes if outcome.kpis)

    def to_json(self, policies: Sequence[str]) -> Json:
        """Seed, level of noise, the bound, and a row a policy."""
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
class Chapter:
    """Everything about one scenario; `worlds` are the plain ones, a seed each."""

    scenario: Scenario
    policies: tuple[str, ...]
    worlds: tuple[Played, ...]
    noisy: dict[float, tuple[Played, ...]]  # by level; each seed is one of `worlds`
    front: Front | None
    loads: dict[float, tuple[Played, ...]] = field(default_factory=dict)  # by load, as `noisy`

    @property
    def dataset(self) -> str:
        """What the links were made from."""
        return next((o.dataset for played in self.worlds for o in played.outcomes if o.dataset), "-")

    @property
    def note(self) -> str:
        """How measurements became links; the first seed's."""
        return next((o.note for played in self.worlds for o in played.outcomes if o.note), "")

    def of(self, policy: str, worlds: Sequence[Played] | None = None) -> list[Outcome]:
        """The outcomes of one policy, a world each."""
        index = self.policies.index(policy)
        return [played.outcomes[index] for played in (self.worlds if worlds is None else worlds)]

    def standing(self, policy: str) -> Json:
        """Mean figures of a policy over its worlds, and how it compares."""
        outcomes = self.of(policy)
        ran = [(o, o.kpis) for o in outcomes if o.kpis is not None]
        times = [time_per_token(o) for o, _ in ran]
        middle = average(times) and float(interquartile(np.array(times)))
        regrets = [regret(o, played.bound) for o, played in zip(outcomes, self.worlds, strict=True) if o.kpis]
        slowest = [k.decision_p99_s for _, k in ran if k.decision_p99_s is not None]
        heard = [k.coordination_max_s for _, k in ran if k.coordination_max_s is not None]
        return {
            "policy": policy,
            "worlds": len(ran),
            "problem": next((o.problem for o in outcomes if o.problem), None),
            "time_per_token_s": average(times),
            "time_per_token_middle_s": middle,
            "utilisation": average([k.utilisation for _, k in ran]),
            "utilisation_owned": average([k.utilisation_owned for _, k in ran]),
            "usd_per_token": average([k.usd_per_token for _, k in ran]),
            "wan_p95_bps": average([k.wan_p95_bps for _, k in ran]),
            "moves": average([float(k.moves) for _, k in ran]),
            "load_stability": min((k.load_stability for _, k in ran), default=None),
            "fallbacks": sum(k.fallbacks for _, k in ran),
            "decision_p99_s": max(slowest, default=None),
            "coordination_max_s": max(heard, default=None),
            "regret": average(regrets),
            "versus": [v.to_json() for v in self.versus(policy)],
        }

    def limits(self) -> dict[str, float | None]:
        """Seconds per token, means over the worlds that have a bound: of the bound, of its best plan that is
        never left, of what is proven over a whole space, where it is, and of all GPUs that always compute."""
        known = [(p.bound, p.wall_s) for p in self.worlds if p.bound is not None]
        return {
            "bound": average([wall / b.tokens for b, wall in known if b.tokens]),
            "best fixed plan": average([wall / b.static_tokens for b, wall in known if b.static_tokens]),
            "ceiling": average([wall / b.ceiling_tokens for b, wall in known if b.ceiling_tokens]),
            "capacity": average([wall / b.capacity_tokens for b, wall in known]),
        }

    def versus(self, policy: str) -> Iterator[Versus]:
        """Against each base that took part and is another policy."""
        for base in BASES:
            if base in self.policies and base != policy:
                found = self.against(policy, base)
                if found is not None:
                    yield found

    def against(self, policy: str, base: str) -> Versus | None:
        """One policy against another in the worlds that both ran in; None without one."""
        return versus(base, self.of(policy), self.of(base))

    def robustness(self) -> list[Json]:
        """Time per token under each level of noise, relative to the same policy and seed without it.

        The bound, of all seeds that have one, comes last. `median` and `worst` are over seeds.
        """
        rows = []
        calm = {played.world.seed: played for played in self.worlds}
        for level, noised in self.noisy.items():
            same = [calm[played.world.seed] for played in noised]
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

    def to_json(self) -> Json:
        """Standings first, then what they were made from."""
        return {
            "scenario": self.scenario.name,
            "dataset": self.dataset,
            "note": self.note,
            "weights": list(self.scenario.weights.vector),
            "standings": [self.standing(policy) for policy in self.policies],
            "limits": self.limits(),
            "robustness": self.robustness(),
            "load": [row.to_json() for row in steadiness(self)],
            "front": None if self.front is None else self.front.to_json(),
            "worlds": [
                played.to_json(self.policies)
                for group in (self.worlds, *self.noisy.values(), *self.loads.values())
                for played in group
            ],
        }


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of `bench`, a chapter a scenario."""

    policies: tuple[str, ...]
    seeds: int
    window: Window
    chapters: tuple[Chapter, ...]
    notes: tuple[str, ...]

    def tally(self) -> list[Json]:
        """Wins, losses and ties over all worlds, and the verdicts over scenarios, of each pair."""
        rows = []
        for policy in self.policies:
            for base in BASES:
                found = [v for c in self.chapters for v in c.versus(policy) if v.base == base]
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
        """The object of `twin bench --json` for more than one world."""
        return {
            "schema": "twin.bench/1",
            "policies": list(self.policies),
            "seeds": self.seeds,
            "window": self.window,
            "notes": list(self.notes),
            "tally": self.tally(),
            "scenarios": [chapter.to_json() for chapter in self.chapters],
        }


def regret(outcome: Outcome, bound: Bound | None) -> float | None:
    """Share of the bound's tokens that a run did not train."""
    if not outcome.kpis or bound is None:
        return None
    return bound.regret(tokens(outcome), local_sgd=outcome.local_sgd)


def _spread(policy: str, clip: float, ratios: Sequence[float]) -> Json:
    """Median and worst of relative losses; None where nothing was trained in one of the worlds."""
    known = bool(ratios) and bool(np.isfinite(ratios).all())
    return {
        "policy": policy,
        "clip": clip,
        "worlds": len(ratios),
        "median": float(np.median(ratios)) if known else None,
        "worst": float(np.max(ratios)) if known else None,
    }
