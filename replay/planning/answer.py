"""The answer to "which plan, how fast, how much": ranked plans, the usual plans beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.errors import InfeasibleError
from ingest.core.progress import SILENT, Progress
from replay.planning import fronts
from replay.planning.candidates import EQUAL, QUICK, SEARCH, SINGLE, origins, planned
from replay.planning.figures import PlanFigures, figures
from replay.planning.ranking import direction, narrowed, tried
from replay.planning.record import Record, load
from replay.planning.remedies import remedies
from replay.planning.turning_points import TurningPoint, turning_points
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.plan_text import with_names
from twin.scenario.question import Question
from twin.settings.window import Part
from twin.traces.time_range import TimeRange


@dataclass(frozen=True, slots=True, eq=False)
class PlanAnswer:
    """Ranked plans of a record, fastest first, the best one of each order of domains.

    `beside`: the plans of named planners, or why there is none. `changes`: what would make another plan the
    best. `assumed`: what was assumed where the question left it open. `tokens`: how many are to be trained.
    """

    record: Record
    plans: tuple[PlanFigures, ...]
    beside: dict[str, PlanFigures | str]
    changes: tuple[TurningPoint, ...] = ()
    assumed: tuple[str, ...] = ()
    tokens: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The object of `twin plan --json`."""
        names = self.record.scenario.domains
        return {
            "schema": "twin.plan/1",
            "scenario": self.record.scenario.name,
            "model": self.record.scenario.model,
            "domains": list(names),
            "dataset": self.record.dataset,
            "window": self.record.window,
            "hours": self.record.hours,
            "note": self.record.note,
            "assumed": list(self.assumed),
            "plans": [one.to_json(names, self.tokens) for one in self.plans],
            "beside": {
                name: {"reason": one} if isinstance(one, str) else one.to_json(names, self.tokens)
                for name, one in self.beside.items()
            },
            "changes": [one.to_json(names) for one in self.changes],
        }


def answer(
    store: Path,
    asked: Question,
    *,
    dataset: str | None = None,
    window: Part | TimeRange = "all",
    links: LinkState | None = None,
    top: int = 3,
    beside: Sequence[str] = (),
    front: bool = False,
    tokens: float | None = None,
    progress: Progress = SILENT,
) -> PlanAnswer:
    """Returns the `top` best plans of different orders of domains over the record of the links, with the
    plans of `beside`, of equal cuts and of the best single domain. With `front` all plans that no other one
    beats in time, utilisation and cost, in place of the `top` ones. `links` take the place of the record.
    `tokens`: for so many the answer has days and dollars.

    Raises:
        NotFoundError: the lake lacks the data set. InfeasibleError: no plan fits.
    """
    record = load(store, asked.scenario, dataset=dataset, window=window, links=links)
    of_planners = planned(record, list(dict.fromkeys((*QUICK, *beside))), progress)
    progress.start(None, "search")
    found = origins(record, of_planners)
    for plan in fronts.weighted_candidates(record) if front else ():
        found.setdefault(plan, SEARCH)
    trial = tried(record, list(found))
    if not trial:
        raise InfeasibleError(_why_none(record, of_planners, found))
    chosen = [one.plan for one in narrowed(record, trial)]
    chosen += fronts.of_trial(record, trial) if front else []
    close = _each(record, list(dict.fromkeys(chosen)), found, progress)
    listed = fronts.of_figures(close) if front else close[:top]
    around = {name: _figures(record, of_planners[name], name) for name in (SINGLE, EQUAL, *beside)}
    progress.start(None, "what would change the answer")
    changes = turning_points(record, listed[0], _rivals(record, listed, around, close))
    return PlanAnswer(record, tuple(listed), around, tuple(changes), asked.assumed, tokens)


def _why_none(record: Record, of_planners: Mapping[str, Plan | str], found: Mapping[Plan, str]) -> str:
    """Returns why there is no plan, and what would change that."""
    name = record.scenario.name
    if found:
        return f"{name}: every plan that fits needs links that are never alive together; try another --window"
    why = with_names(str(of_planners[EQUAL]), record.scenario.domains)
    least = "; or ".join(remedies(record)) or "none of the changes that are tried: take a smaller model"
    return f"{name}: no plan fits the memory of its GPUs ({why}). The smallest change that would: {least}"


def _rivals(
    record: Record,
    listed: Sequence[PlanFigures],
    beside: Mapping[str, PlanFigures | str],
    close: Sequence[PlanFigures],
) -> dict[str, PlanFigures]:
    """Returns the plans that were looked at closely by what the answer calls them: those listed after the
    best, those beside, and of the others those over other orders of domains."""
    found = {f"plan {n}": one for n, one in enumerate(listed[1:], 2)}
    found |= {name: one for name, one in beside.items() if not isinstance(one, str)}
    orders = {direction(one.plan) for one in (*listed, *found.values())}
    rest = [one for one in close if direction(one.plan) not in orders]
    return found | {_domains(record, one.plan): one for one in rest}


def _domains(record: Record, plan: Plan) -> str:
    """Returns a plan that is not listed in words: its domains in order."""
    names = record.scenario.domains
    return f"a plan over {' > '.join(names[k] for k in plan.order)}"


def _each(
    record: Record, plans: Sequence[Plan], found: dict[Plan, str], progress: Progress
) -> list[PlanFigures]:
    """Returns the figures of the plans that ever run, the fastest first."""
    progress.start(len(plans), "figures", "plans")
    listed = []
    for plan in plans:
        listed.append(figures(record, plan, _origin(found, plan)))
        progress.advance()
    return sorted((one for one in listed if one is not None), key=lambda one: -one.mean_tokens_per_s)


def _figures(record: Record, plan: Plan | str, name: str) -> PlanFigures | str:
    if isinstance(plan, str):
        return with_names(plan, record.scenario.domains)
    return figures(record, plan, name) or "its links are never alive together"


def _origin(found: dict[Plan, str], plan: Plan) -> str:
    """Returns what found a placement, whatever its warm-up depth is now."""
    same = (name for one, name in found.items() if (one.shares, one.dp, one.micro_batch) == (
        plan.shares, plan.dp, plan.micro_batch
    ))  # fmt: skip
    return next(same, SEARCH)
