"""The resource that limits a case of `twin estimate`, as `twin.estimation.bottleneck` names that of a plan.

A case has the durations of a pipeline but no plan: links are freed boundary by boundary, and what two domains
exchange for a tied embedding is left as it is.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twin.cases import stage_durations
from twin.cases.case import Case, Times
from twin.estimation.bottleneck import Bottleneck, Kind, Resource, ranked, saved
from twin.pipeline import freed
from twin.pipeline.pipeline import Pipeline

Int = NDArray[np.int64]


def site_names(case: Case) -> tuple[str, ...]:
    """Names of the domains in order of appearance: those of the column `domains`, else "site 1", ..."""
    count = max(case.domains) + 1
    return case.domain_names or tuple(f"site {k + 1}" for k in range(count))


def limits(case: Case, timing: Pipeline, update: Int, exchange_ns: int) -> Bottleneck:
    """Every resource of a case with what is saved without it; `exchange_ns`: averaging between replicas."""
    whole = stage_durations.iteration_ns(case, timing) + exchange_ns
    found: list[Resource] = []

    def without(kind: Kind, name: str, changed: Pipeline) -> None:
        alone = stage_durations.iteration_ns(case, changed) + exchange_ns
        found.append(Resource(kind, name, saved(whole, alone)))

    across = _boundaries(case, timing)
    for name, rows in across.items():
        without("link", f"link {name}", _silenced(timing, rows))
    if len(across) > 1:
        rows = [b for each in across.values() for b in each]
        without("links", f"all {len(across)} links", _silenced(timing, rows))
    if exchange_ns:
        found.append(Resource("link", "exchange between replicas", saved(whole, whole - exchange_ns)))
    found += _compute(case, timing, whole, exchange_ns)
    if np.any(timing.tail > update):
        without("gradients", "gradient exchange", replace(timing, tail=np.minimum(timing.tail, update)))
    return Bottleneck(ranked(found))


def _compute(case: Case, timing: Pipeline, whole: int, exchange_ns: int) -> list[Resource]:
    """Compute of each stage, of all of them, and the bubble."""
    names = site_names(case)
    times = [ns + exchange_ns for ns in _without_compute(case, timing)]
    found = [
        Resource("stage", f"compute of stage {i} in {names[case.domains[i]]}", saved(whole, int(ns)))
        for i, ns in enumerate(times[:-1])
    ]
    if len(found) > 1:
        found.append(Resource("stages", f"compute of all {len(found)} stages", saved(whole, int(times[-1]))))
    if not _differ(case):
        found.append(Resource("bubble", "bubble", saved(whole, freed.without_bubble(timing) + exchange_ns)))
    return found


def _differ(case: Case) -> bool:
    """True where the micro-batches were measured each, and differ."""
    return case.measured.forward_each_s is not None or case.measured.backward_each_s is not None


def _without_compute(case: Case, timing: Pipeline) -> list[int]:
    """Iteration times (S + 1) as `freed.without_compute` has them, of unequal micro-batches, too."""
    if not _differ(case):
        return [int(ns) for ns in freed.without_compute(timing)]
    found, each = [], case.measured
    for free in (*((i,) for i in range(timing.stages)), range(timing.stages)):
        kept = np.array([[0 if i in free else 1] for i in range(timing.stages)])

        def left(times: tuple[Times, ...] | None, free: Sequence[int] = free) -> tuple[Times, ...] | None:
            if times is None:
                return None
            return tuple((0.0,) * len(row) if i in free else row for i, row in enumerate(times))

        measured = replace(
            each, forward_each_s=left(each.forward_each_s), backward_each_s=left(each.backward_each_s)
        )
        parts = np.tile(kept, (timing.chunks, 1))
        changed = replace(
            timing, tf=timing.tf * parts, tb=timing.tb * parts,
            tw=None if timing.tw is None else timing.tw * parts,
        )  # fmt: skip
        found.append(stage_durations.iteration_ns(replace(case, measured=measured), changed))
    return found


def _boundaries(case: Case, timing: Pipeline) -> dict[str, list[int]]:
    """Boundaries between domains by the link that they cross."""
    names, found = site_names(case), dict[str, list[int]]()
    for b in range(timing.of.shape[0]):
        i, j = sorted((case.domains[b], case.domains[(b + 1) % len(case.domains)]))
        if i != j:
            found.setdefault(f"{names[i]} <-> {names[j]}", []).append(b)
    return found


def _silenced(timing: Pipeline, rows: list[int]) -> Pipeline:
    """The pipeline where messages over these boundaries take no time."""

    def quiet(values: Int) -> Int:
        changed = values.copy()
        changed[rows] = 0
        return changed

    return replace(timing, of=quiet(timing.of), lf=quiet(timing.lf), ob=quiet(timing.ob), lb=quiet(timing.lb))
