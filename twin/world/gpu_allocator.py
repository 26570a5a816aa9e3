"""GPUs held by jobs: no two jobs share one, and a job may preempt those of lower priority."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twin.core.plan import Plan

Counts = tuple[int, ...]
"""GPUs per domain (K,)."""


class GpuHolder(Protocol):
    """A job as the allocator sees it."""

    priority: int

    @property
    def held(self) -> Counts:
        """GPUs (K,) held now."""
        ...

    @property
    def preemptible(self) -> bool:
        """True where the job can be stopped now."""
        ...


@dataclass
class GpuAllocator:
    """Counts GPUs per domain: those of a domain are alike, and each job numbers its own from 0.

    `alive` returns the GPUs alive per domain (K,). `holders` are the active jobs in the order of arrival.
    """

    alive: Callable[[], Counts]
    holders: list[GpuHolder]

    def free_for(self, job: GpuHolder) -> Counts:
        """GPUs (K,) that `job` could use: those alive, less those of jobs that it cannot preempt."""
        held = [
            other.held for other in self.holders if other is not job and not self._can_preempt(other, job)
        ]
        return tuple(max(0, n - sum(taken)) for n, *taken in zip(self.alive(), *held, strict=True))

    def to_preempt(self, job: GpuHolder, need: Counts) -> list[GpuHolder]:
        """Jobs to stop so that `job` can hold `need` (K,): lowest priority first, the latest among equals."""
        preempted: list[GpuHolder] = []
        for other in self._by_priority():
            staying = [h.held for h in self.holders if h is not job and h not in preempted]
            short = [
                n + sum(taken) > alive for n, alive, *taken in zip(need, self.alive(), *staying, strict=True)
            ]
            if not any(short):
                break
            hinders = any(lacks and n for lacks, n in zip(short, other.held, strict=True))
            if other is not job and hinders and self._can_preempt(other, job):
                preempted.append(other)
        return preempted

    def hit_by_failure(self, domain: int) -> list[GpuHolder]:
        """Jobs that lose GPUs when fewer are alive in `domain` than are held, at least one if any holds some.

        A fault takes GPUs in use first, and those of the job of lowest priority.
        """
        hit: list[GpuHolder] = []
        for other in self._by_priority():
            if other.held[domain]:
                staying = sum(h.held[domain] for h in self.holders if h not in hit)
                if not hit or staying > self.alive()[domain]:
                    hit.append(other)
        return hit

    def _by_priority(self) -> list[GpuHolder]:
        """Holders by priority, lowest first; among equals the latest first."""
        order = [(holder.priority, -n) for n, holder in enumerate(self.holders)]
        return [self.holders[-n] for _, n in sorted(order)]

    def _can_preempt(self, other: GpuHolder, job: GpuHolder) -> bool:
        return other.priority < job.priority and other.preemptible


def counts(plan: Plan | None, domains: int) -> Counts:
    """GPUs per domain (K,) that `plan` needs; zeros without a plan."""
    need = [0] * domains
    for share in plan.shares if plan is not None else ():
        need[share.domain] = len(share.gpus)
    return tuple(need)


def at_least(a: Sequence[int], b: Sequence[int]) -> Counts:
    """Elementwise maximum."""
    return tuple(map(max, a, b))
