"""Who holds which GPUs: jobs never share one, and the more urgent job may take those of the less urgent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twin.core.plan import Plan

Counts = tuple[int, ...]
"""GPUs per domain (K,)."""


class Holder(Protocol):
    """A job as the floor sees it."""

    priority: int

    @property
    def held(self) -> Counts:
        """GPUs that it holds now."""
        ...

    @property
    def displaceable(self) -> bool:
        """Whether it can be stopped at this moment."""
        ...


@dataclass
class Floor:
    """GPUs are counted, not named: those of a domain are alike, and each job numbers its own from 0.

    `alive` tells the GPUs alive per domain. `holders` are the active jobs in the order of arrival.
    """

    alive: Callable[[], Counts]
    holders: list[Holder]

    def free_for(self, job: Holder) -> Counts:
        """What `job` could use: alive, less what others hold that it cannot displace."""
        held = [other.held for other in self.holders if other is not job and not self._yields(other, job)]
        return tuple(max(0, n - sum(taken)) for n, *taken in zip(self.alive(), *held, strict=True))

    def in_the_way(self, job: Holder, need: Counts) -> list[Holder]:
        """Who must be stopped so that `job` can hold `need`: the least urgent, the latest among equals."""
        victims: list[Holder] = []
        for other in self._least_urgent_first():
            staying = [h.held for h in self.holders if h is not job and h not in victims]
            short = [
                n + sum(taken) > alive for n, alive, *taken in zip(need, self.alive(), *staying, strict=True)
            ]
            if not any(short):
                break
            hinders = any(lacks and n for lacks, n in zip(short, other.held, strict=True))
            if other is not job and hinders and self._yields(other, job):
                victims.append(other)
        return victims

    def struck(self, domain: int) -> list[Holder]:
        """Whose GPUs are lost when fewer are alive in `domain` than are held, and one holder in any case.

        A fault takes GPUs in use first, and those of the least urgent job.
        """
        hit: list[Holder] = []
        for other in self._least_urgent_first():
            if other.held[domain]:
                staying = sum(h.held[domain] for h in self.holders if h not in hit)
                if not hit or staying > self.alive()[domain]:
                    hit.append(other)
        return hit

    def _least_urgent_first(self) -> list[Holder]:
        """Of equally urgent ones the latest first."""
        order = [(holder.priority, -n) for n, holder in enumerate(self.holders)]
        return [self.holders[-n] for _, n in sorted(order)]

    def _yields(self, other: Holder, job: Holder) -> bool:
        return other.priority < job.priority and other.displaceable


def counts(plan: Plan | None, domains: int) -> Counts:
    """GPUs per domain that `plan` needs; none without a plan."""
    need = [0] * domains
    for share in plan.shares if plan is not None else ():
        need[share.domain] = len(share.gpus)
    return tuple(need)


def at_least(a: Sequence[int], b: Sequence[int]) -> Counts:
    """The greater of both in every domain."""
    return tuple(map(max, a, b))
