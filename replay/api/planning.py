"""Answers without a replay: the cost of given plans, and the best plans of a scenario."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from ingest.core.errors import UsageError
from replay.api.running import scenario_of, store_of
from replay.api.store import PathLike, Store
from replay.planning.answer import PlanAnswer
from replay.planning.answer import answer as best
from twin.cases import table_answers
from twin.cases.answer import Answer, answer
from twin.cases.resolve import resolve
from twin.cases.table_answers import CaseAnswers
from twin.cases.table_reader import cells_of
from twin.core.domain import LinkState
from twin.goodput.batch_choice import BatchAnswer, BatchQuestion, parse_batches, parse_gpus
from twin.goodput.batch_choice import answer as best_batch
from twin.scenario.prepare import Scenario, Window
from twin.scenario.question import Question, question
from twin.traces.time_range import TimeRange


@overload
def estimate(cases: PathLike, *, store: Store | PathLike | None = None) -> CaseAnswers: ...
@overload
def estimate(cases: Mapping[str, Any], *, store: Store | PathLike | None = None) -> Answer: ...
@overload
def estimate(
    cases: Sequence[Mapping[str, Any]], *, store: Store | PathLike | None = None
) -> list[Answer]: ...
def estimate(
    cases: PathLike | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    store: Store | PathLike | None = None,
) -> CaseAnswers | Answer | list[Answer]:
    """Time, memory, utilisation, traffic, money and energy of one iteration of each case.

    A case maps columns of docs/guides/estimate.md to values, such as `{"layers": 80, "gpus": 64, "tp":
    8}`; a path is a CSV or YAML table, whose bad rows are listed in `failures`. The constants are those
    of the latest calibration of the store, else the built-in ones.

    Raises:
        UsageError: an unknown column. InputError: a cell or file cannot be read, or cells contradict each
        other.
    """
    constants = table_answers.constants_of(store_of(store).path)
    if isinstance(cases, str | os.PathLike):
        return table_answers.estimate(Path(cases), constants)
    if isinstance(cases, Mapping):
        return answer(resolve(cells_of(cases)), constants)
    return [answer(resolve(cells_of(case)), constants) for case in cases]


def batch(
    model: str,
    gpus: str,
    batches: int | str | Sequence[int],
    *,
    noise_scale: float | None = None,
    initial: int | None = None,
    tp: int = 1,
    pp: int = 1,
) -> BatchAnswer:
    """The batch of a model on GPUs, as `twin batch` answers: `chosen` (micro-batch, accumulation, recompute,
    ZeRO stage, peak bytes, samples/s, goodput, learning-rate factor), the best way of each batch in `best`,
    all in `choices`, and the fixed formula.

    `gpus` such as "8 x A100-80". `batches`, samples: one, several, or words such as "32..1024"; several need
    `noise_scale`, the gradient's, samples, at the batch `initial` (the first by default).

    Raises:
        UsageError: an unknown model or GPU, batches that do not divide, or nothing fits.
    """
    count, kind = parse_gpus(gpus)
    if isinstance(batches, str):
        sizes = parse_batches(batches)
    else:
        sizes = (batches,) if isinstance(batches, int) else tuple(sorted(set(batches)))
    return best_batch(BatchQuestion(model, kind, count, sizes, tp, pp, noise_scale, initial))


def plan(
    scenario: str | Scenario | None = None,
    *,
    model: str | None = None,
    sites: str | None = None,
    links: str | LinkState | None = None,
    batch: int | None = None,
    store: Store | PathLike | None = None,
    dataset: str | None = None,
    window: Window | tuple[str | None, str | None] = "all",
    top: int = 3,
    front: bool = False,
    beside: Sequence[str] = (),
    tokens: float | None = None,
) -> PlanAnswer:
    """The best plans over the recorded links, as `twin plan` answers: `plans`, fastest first, with tokens/s
    at p10, p50, p90 and in the mean, seconds of an iteration by part, free bytes of a GPU, USD and kWh a day.

    In place of a scenario (`tri-7b` by default): `model`, `sites` such as "paris: 16 x A100-80, berlin: 32 x
    H100", `links` (a data set of the store) and `batch`, sequences an iteration. `links` as a `LinkState`,
    (K, K) in bit/s and s, stands for the record of a scenario. `window`, `top`, `front` and `beside` are
    those of the command, `tokens` its `--tokens` as a number; `beside` of the answer has the single-domain
    and equal-cut plans, or why there is none.

    Raises:
        UsageError: a model, GPU, site or policy is not known. NotFoundError: the lake lacks the data set.
        InfeasibleError: no plan fits; the message names the smallest change after which one does.
    """
    target = store_of(store)
    part = window if isinstance(window, str) else TimeRange.parse(*window) or "all"
    state = links if isinstance(links, LinkState) else None
    named = links if isinstance(links, str) else None
    if named is not None or model is not None or sites is not None or batch is not None:
        if scenario is not None or dataset is not None:
            raise UsageError(
                "model, sites, links and batch stand for a scenario: leave out scenario and dataset"
            )
        asked = question(target.path, model, sites, named, batch)
    else:
        asked = Question(scenario_of(scenario or "tri-7b"))
    return best(
        target.path, asked, dataset=dataset, window=part, links=state, top=top, front=front, beside=beside,
        tokens=tokens,
    )  # fmt: skip
