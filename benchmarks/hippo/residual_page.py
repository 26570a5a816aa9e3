"""The page of `benchmarks.hippo.residual_worth`: tables with intervals from the figures of every scenario."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.hippo.residual_knobs import SAME
from benchmarks.hippo.residual_models import FITS, share
from replay.metrics.paired_comparison import PairedDifference, student

Float = NDArray[np.float64]
Json = dict[str, Any]

BASES = ("past", "now")
MODELS = tuple(f"{name} over {base}" for base in BASES for name in FITS)
TWICE = 2
"""Moments that the bootstrap draws together, in horizons: their futures overlap."""
MOVED_TOGETHER = 24
"""Periods of a run that are drawn together."""


def per_cent(found: PairedDifference, digits: int = 2) -> str:
    """Returns a share and its interval in per cent."""
    mean, low, high = (100 * one for one in (found.mean, found.low, found.high))
    return f"{mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Returns a Markdown table."""
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def explained(rows: dict[str, Float], what: str, model: str, periods: int) -> PairedDifference:
    """Returns 1 - squared errors of a model over those of "there is no residual"."""
    none = rows[f"{what}/0 over {model.split(' over ')[1]}"]
    return share(none - rows[f"{what}/{model}"], none, TWICE * periods, model)


def gain(rows: dict[str, Float], way: str, than: str, length: int) -> PairedDifference:
    """Returns by how much more one way does than another."""
    return share(rows[way] - rows[than], rows[than], length, way)


def horizons(found: list[Json]) -> Iterator[tuple[Json, int, dict[str, Float]]]:
    """Yields every scenario with each horizon that its window allows."""
    for one in found:
        for periods, rows in one["values"].items():
            if rows:
                yield one, int(periods), arrays(rows)


def arrays(rows: dict[str, list[float]]) -> dict[str, Float]:
    """Returns the rows of a file as arrays."""
    return {what: np.array(values) for what, values in rows.items()}


def span(one: Json, periods: int) -> str:
    """Returns the length of a horizon as text."""
    minutes = periods * one["period_s"] / 60
    return f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:g} h"


def residual_rows(found: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yields how much of each residual the models explain."""
    for one, periods, rows in horizons(found):
        plans = max(one["plans"])
        size = [np.sqrt(rows[f"error/0 over {base}"].mean() / np.mean(one["plans"][1:])) for base in BASES]
        yield (
            one["title"], span(one, periods), f"{len(rows['rate/past'])} x {plans}",
            *(f"{100 * x:.1f} %" for x in size),
            *(f"{explained(rows, 'error', model, periods).mean:.2f}" for model in MODELS),
            *(f"{explained(rows, 'apart', model, periods).mean:.2f}" for model in MODELS[:2]),
        )  # fmt: skip


def choice_rows(found: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yields the true rate of the plan that each way chooses, against that of the past."""
    for one, periods, rows in horizons(found):
        ways = ("now", "ahead", *MODELS, "hindsight")
        cells = (per_cent(gain(rows, f"rate/{way}", "rate/past", TWICE * periods)) for way in ways)
        yield one["title"], span(one, periods), *cells


def lead_rows(found: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yields the true rate of what each model chooses, against the choice by the hour that `mpc` looks ahead;
    last the mean over scenarios, their shorter horizon each."""
    shortest: dict[str, list[float]] = {model: [] for model in MODELS}
    for one, periods, rows in horizons(found):
        leads = [gain(rows, f"rate/{model}", "rate/ahead", TWICE * periods) for model in MODELS]
        yield one["title"], span(one, periods), *map(per_cent, leads)
        if periods == min(map(int, one["values"])):
            for model, lead in zip(MODELS, leads, strict=True):
                shortest[model].append(lead.mean)
    yield "mean of sets", "shorter", *(per_cent(student("", np.array(some))) for some in shortest.values())


def move_ways(found: list[Json]) -> list[str]:
    """Returns the ways to decide on moves that some scenario has, beside keeping."""
    return list(dict.fromkeys(way for one in found for way in one["moves"] if way != "keep"))


def move_rows(found: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yields iterations of every way against keeping the first plan."""
    for one in found:
        rows = arrays(one["moves"])
        cells = (
            per_cent(gain(rows, way, "keep", MOVED_TOGETHER)) if way in rows else "-"
            for way in move_ways(found)
        )
        yield one["title"], str(len(rows["keep"])), *cells


def area_rows(found: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yields how well each model tells whether a move pays."""
    for one in found:
        areas = one["areas"]
        yield one["title"], *(f"{areas[way]:.2f}" if way in areas else "-" for way in learned_ways(found))


def learned_ways(found: list[Json]) -> list[str]:
    """Returns the learned ways to decide on moves."""
    return [way for way in move_ways(found) if way not in ("rule", "hindsight")]


def knob_rows(found: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yields what knobs are worth by who sets them, and how long that takes."""
    for one in found:
        if not one["knobs"]:
            continue
        rows = arrays(one["knobs"])
        best = rows["best"]
        cells = (
            f"{per_cent(gain(rows, way, 'best', MOVED_TOGETHER))}; "
            f"{100 * float((rows[way] >= (1 - SAME) * best).mean()):.0f} %"
            for way in ("search", "head", "fixed", "none")
        )
        head = per_cent(gain(rows, "head", "search", MOVED_TOGETHER))
        times = (f"{1e3 * float(rows[way].mean()):.2f}" for way in ("search_s", "head_s"))
        yield one["title"], *cells, head, *times


def counted(comparisons: list[PairedDifference]) -> str:
    """Returns how many comparisons are shown to be better and worse."""
    better, worse = (sum(getattr(one, way) for one in comparisons) for way in ("better", "worse"))
    return f"better in {better}, worse in {worse} of {len(comparisons)}"


def conclusion(found: list[Json]) -> str:
    """Returns in how many comparisons each learned head is better or worse than what needs no learning."""
    values = [
        gain(rows, f"rate/{model}", "rate/ahead", TWICE * periods)
        for _, periods, rows in horizons(found)
        for model in MODELS
    ]
    moves = [
        gain(arrays(one["moves"]), way, "rule", MOVED_TOGETHER)
        for one in found
        for way in learned_ways(found)
        if way in one["moves"]
    ]
    knobs = [gain(arrays(one["knobs"]), "head", "search", MOVED_TOGETHER) for one in found if one["knobs"]]
    return f"""Learned heads against what needs no learning, with an interval off 0, over sets and models:

* plan value as a residual, against the planner's look ahead: {counted(values)};
* leave or stay, against the rule of `mpc`: {counted(moves)};
* knobs, against their search: {counted(knobs)}.

A head that is better in none is not part of Hi-PPO. Intervals are not corrected for the number of
comparisons, and are as wide as the tables say: a gain inside one is not excluded."""


def page(found: list[Json]) -> str:
    """Returns the text of docs/measured/residual.md."""
    minutes = round(sum(one["seconds"] for one in found) / 60)
    codes = ", ".join(sorted({one["code"] for one in found}))
    learned = tuple(learned_ways(found))
    return f"""# What there is to learn beyond the planners

Generated by `python -m benchmarks.hippo.residual_worth page` from figures of `python -m
benchmarks.hippo.residual_worth run`, sources {codes}, {minutes} CPU minutes.
Training windows alone, the first 70 % of each trace. Five stretches from a quarter of the window on are
each a run of their own, with filters and a past of what came before; models are fitted on the
earlier stretches and tested on the next one, four times. Storm is learned from under other draws of its
noise and congestion, without the outages at fixed times that its tests have. Intervals: 95 %, block
bootstrap over moments in stretches of twice the horizon. Where all tests have fewer than three of them
(the longer horizons, and octo-175b) thirds of them are drawn, and the interval is too narrow.

{conclusion(found)}

## Value of a plan as a residual

The residual is the log of the true rate, mean over the horizon, over a planner's prediction at the
moment: the mean over the past, or the rate under the filtered links now; knobs turned in all of them. The
models, ridge regression and a network of two hidden layers of 32, read the prediction now, for the hour
ahead and of the last hour, each over the past mean; spread and share of slow times of the plan; the hour
of the day; the worst link of the plan, spread, outages and forecast errors of its links. Explained: 1 -
squared errors over those of "no residual", for all values, and for differences between the plans of a
moment, which alone change a choice; below 0 the model is worse than none.

{
        table(
            (
                "links",
                "horizon",
                "moments x plans",
                "residual over past, RMS",
                "over now, RMS",
                *(f"explained: {model}" for model in MODELS),
                *(f"between plans: {model}" for model in MODELS[:2]),
            ),
            residual_rows(found),
        )
    }

True rate of the plan that is chosen at each moment, as if nothing ran yet, against the one of the past's
best plan, per cent. *ahead*: by the mean rate over the scenarios of the hour that `mpc` looks ahead.
*hindsight*: the best candidate.

{table(("links", "horizon", "now", "ahead", *MODELS, "hindsight"), choice_rows(found))}

The same against the choice by *ahead*, which no learning needs:

{table(("links", "horizon", *MODELS), lead_rows(found))}

## Leave or stay

Iterations against keeping the past's best plan, per cent. *rule*: `mpc` with its margin, break-even rule
and the last check of `_worth_staying`, asked at every period (not at changes between). A model predicts
the gain of every move over the horizon, pause counted; the best move is made where its gain exceeds a
margin, which is chosen on the stretches learned from and may be infinite. *hindsight*: the best path that
knows all rates.

{table(("links", "periods", *move_ways(found)), move_rows(found))}

Area under the curve of the prediction, does the best move from the first plan gain 1 %? 0.5 is chance;
"-": nothing to tell apart.

{table(("links", *learned), area_rows(found))}

## Knobs by a head

Two kept plans a stretch, at the begin of every period. *search*: relays and warm-up depth as
`policy/control/knobs.py` sets them. *head*: a regression on all filtered links of what each of the 16
most frequent answers of the search does in the coming period. *fixed*: the setting that did most before;
*none*: direct routes, no extra depth. True rate of the period against the best setting in hindsight, per
cent, and how often the setting is that one or within {100 * SAME:g} %; then CPU milliseconds of a
decision. In a run links that change turn knobs between periods, too, so that all ways lose more here. A
micro-batch is no free knob: another one stops the job, so it is part of the plan and of the choice above.

{
        table(
            ("links", "search", "head", "fixed", "none", "head against search", "search, ms", "head, ms"),
            knob_rows(found),
        )
    }
"""
