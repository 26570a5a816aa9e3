"""False alarms and detection delays of the filters of links under both alarm rules, as Markdown.

    python -m benchmarks.twin.change_alarms STORE ../shared/traces/wan/ripe-atlas-rtt > PAGE

PAGE is `docs/measured/alarms.md`. STORE holds the ingested sets, measured and synthetic; the folder has the
changes that a person marked. *Before* is the rule `restart` of
`twin.filters.link_filter.AlarmRule`, *after* is `unforecast`; both run here, on the same samples.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.twin.walk_forward import fit_pooled
from ingest.core.units import NS_PER_S, to_ns
from ingest.lake import duckdb_views
from replay.metrics import kpis
from replay.run import runner
from replay.store import checkpoint_registry
from replay.store.event_sinks import Collect
from replay.store.run_header import Header
from twin.core.domain import LinkState
from twin.core.seeds import generator
from twin.filters.link_filter import AlarmRule
from twin.filters.multiple_model import MultipleModelFilter
from twin.filters.ou_process import Array, fit_level
from twin.scenario.prepare import PreparedScenario, load, prepare

RULES: tuple[AlarmRule, ...] = ("restart", "unforecast")
"""Before and after."""
WINDOWS = (
    ("quad-70b", "cloudpilot-iperf3"),
    ("octo-175b", None),
    ("tri-7b", "wanify-aws8"),
    ("geant-70b", None),
    ("planet-405b", None),
    ("tri-7b", "synthetic-tri"),
    ("quad-70b", "synthetic-quad"),
    ("octo-175b", "synthetic-octo"),
)
"""Scenarios, and the set that replaces their own."""
BAND = 1.25
"""Largest rate over the smallest one in a stationary stretch; a larger change asks for a decision anyway."""
STRETCH_S, SETTLING_S = 600.0, 600.0
"""Shortest stationary stretch; alarms in so much time after its beginning answer to the change before it."""
FACTORS = (0.5, 0.7, 1.5)
INJECTED_S = 2400.0
"""Shortest stretch into the middle of which a change is put."""
SERIES = {
    "cloudpilot-iperf3": ("bandwidth_bps", 0.5, 1),
    "wanify-aws8": ("bandwidth_bps", 0.5, 1),
    "geant-available": ("bandwidth_bps", 0.5, 1),
    "ibm-interregion-latency": ("rtt_s", 1.3, 1),
    "netlatency-seattle": ("rtt_s", 1.3, 97),
}
"""Quantity, the factor of the change put in, and every how manieth link is taken."""
SQL = """
    SELECT src || '>' || dst AS link, epoch_ns(ts) / 1e9 AS t, avg({what}) AS value FROM link_samples
    WHERE dataset = ? AND {what} > 0 AND coalesce(duration_s, 99) >= 5 GROUP BY ALL ORDER BY 1, 2
"""
TRAIN_SHARE, LEAST = 0.7, 40
AFTER_LABEL, BEFORE_LABEL = 5, 2
"""Samples around a person's mark in which an alarm counts as an answer to it."""
POLICY_RUNS = (("quad-70b", "synthetic-quad"), ("quad-70b", "cloudpilot-iperf3"), ("tri-7b", "synthetic-tri"))


@dataclass
class Score:
    """Alarms of one rule."""

    false: int = 0
    alarms: int = 0
    delays: list[int] = field(default_factory=list)
    changes: int = 0

    def change(self, raised: NDArray[np.bool_]) -> None:
        """Counts a change, answered or not in the samples from its first one on."""
        self.changes += 1
        hits = np.flatnonzero(raised)
        self.delays += [int(hits[0]) + 1] if len(hits) else []

    @property
    def found(self) -> str:
        """Changes that were answered, and the mean delay in samples."""
        delay = f"{np.mean(self.delays):.1f}" if self.delays else "-"
        return f"{len(self.delays)} / {delay}"


# -- windows of scenarios, as replays see them


def stretches(rates: Array, least: int) -> list[tuple[int, int]]:
    """First sample and end of every stretch of one link in which the rate stays within `BAND`.

    Each begins where the last one ended; those shorter than `least` samples are left out.
    """
    found, first = [], 0
    while first < len(rates):
        low = high = rates[first]
        end = first + 1
        while low > 0 and end < len(rates) and rates[end] > 0:
            low, high = min(low, rates[end]), max(high, rates[end])
            if high > BAND * low:
                break
            end += 1
        if low > 0 and end - first >= least:
            found.append((first, end))
        first = end
    return found


def truth(setup: PreparedScenario) -> tuple[NDArray[np.int64], Array]:
    """Times (n,) of telemetry and the rates (n, L) of all links then."""
    times = np.arange(0, setup.wan.end_ns, to_ns(setup.scenario.telemetry.period_s), dtype=np.int64)
    filter_, rates = setup.link_filter(), []
    for pair in zip(filter_.rows.tolist(), filter_.columns.tolist(), strict=True):
        link = setup.wan.series[pair]
        rates.append(
            link.bandwidth_bps[np.maximum(np.searchsorted(link.times_ns, times, side="right") - 1, 0)]
        )
    return times, np.array(rates).T


def raised_in(
    setup: PreparedScenario, rule: AlarmRule, times: NDArray[np.int64], rates: Array
) -> NDArray[np.bool_]:
    """(n, L) alarms at noisy samples of `rates` (n, L)."""
    filter_ = setup.link_filter()
    filter_.alarm_rule = rule
    number = {
        pair: n for n, pair in enumerate(zip(filter_.rows.tolist(), filter_.columns.tolist(), strict=True))
    }
    state, noise = setup.wan.at(0), setup.scenario.telemetry.noise
    rng, raised = generator(setup.seed, "telemetry"), np.zeros(rates.shape, np.bool_)
    for k, now_ns in enumerate(times.tolist()):
        bandwidth = state.bandwidth_bps.copy()
        bandwidth[filter_.rows, filter_.columns] = rates[k] * np.exp(
            noise * rng.standard_normal(rates.shape[1])
        )
        for pair in filter_.observe(now_ns, LinkState(bandwidth, state.latency_s)):
            raised[k, number[pair]] = True
    return raised


@dataclass(frozen=True)
class WindowScores:
    """One window: its hours, stationary ones, and scores by rule and change (None: its own changes)."""

    title: str
    links: int
    hours: float
    still_hours: float
    scores: dict[tuple[AlarmRule, float | None], Score]


def window(store: Path, name: str, dataset: str | None) -> WindowScores:
    """Runs both rules over the held-out window of a scenario, as it is and with changes put in."""
    setup = prepare(load(name), store, dataset=dataset)
    period_s = setup.scenario.telemetry.period_s
    times, rates = truth(setup)
    settle = max(2, round(SETTLING_S / period_s))
    links = [stretches(column, max(2, round(STRETCH_S / period_s))) for column in rates.T]
    still = [
        (link, begin + (settle if begin else 0), end) for link, own in enumerate(links) for begin, end in own
    ]
    scores: dict[tuple[AlarmRule, float | None], Score] = {}
    for rule in RULES:
        raised, score = raised_in(setup, rule, times, rates), Score()
        score.alarms = int(raised.sum())
        score.false = sum(int(raised[begin:end, link].sum()) for link, begin, end in still)
        for link, own in enumerate(links):
            for (a, b), (c, d) in pairwise(own):
                levels = np.log(np.median(rates[a:b, link])), np.log(np.median(rates[c:d, link]))
                if c - b <= settle and abs(levels[1] - levels[0]) > log(BAND):
                    score.change(raised[b : c + settle, link])
        scores[rule, None] = score
    for factor in FACTORS:
        changed, places = rates.copy(), []
        for link, own in enumerate(links):
            for begin, end in own:
                if (end - begin) * period_s >= INJECTED_S:
                    middle = (begin + end) // 2
                    changed[middle:end, link] *= factor
                    places.append((link, middle, min(end, middle + settle)))
        for rule in RULES:
            raised, score = raised_in(setup, rule, times, changed), Score()
            for link, begin, end in places:
                score.change(raised[begin:end, link])
            scores[rule, factor] = score
    hours = period_s / 3600
    still_hours = sum(max(0, end - begin) for _, begin, end in still) * hours
    title = f"{name}, {dataset or setup.dataset}"
    return WindowScores(title, rates.shape[1], rates.size * hours, still_hours, scores)


# -- bare samples


def walk(
    times: Sequence[Array], logs: Sequence[Array], learned: Sequence[int]
) -> dict[AlarmRule, list[NDArray[np.bool_]]]:
    """Alarms at every sample of every link; `learned` samples of each train its filters."""
    past = [(t[:n][-2000:], z[:n][-2000:]) for t, z, n in zip(times, logs, learned, strict=True)]
    known = [t for t, _ in past], [z for _, z in past]
    models = MultipleModelFilter(fit_pooled(*known), fit_level(*known))
    raised = {rule: [np.zeros(len(t), np.bool_) for t in times] for rule in RULES}
    for link, (seconds, values) in enumerate(zip(times, logs, strict=True)):
        one = np.array([link])
        for k, since_s in enumerate((seconds - seconds[0]).tolist()):
            alarms, _ = models.observe(round(since_s * NS_PER_S), one, values[k : k + 1])
            raised["restart"][link][k] = len(models.restarted) > 0
            raised["unforecast"][link][k] = len(alarms) > 0
    return raised


def shuffled(store: Path, dataset: str) -> tuple[int, float, dict[AlarmRule, Score], dict[AlarmRule, Score]]:
    """Held-out samples in random order, which are stationary whatever they were, and with one change put in.

    Returns: links, link-hours, and the scores of the first and of the second by rule.
    """
    what, factor, every = SERIES[dataset]
    rows: dict[str, list[tuple[float, float]]] = {}
    for link, t, value in duckdb_views.connect(store).execute(SQL.format(what=what), [dataset]).fetchall():
        rows.setdefault(link, []).append((t, log(value)))
    taken = [np.array(samples).T for samples in rows.values() if len(samples) >= LEAST][::every]
    rng, times, still, changed, learned = np.random.default_rng(0), [], [], [], []
    for seconds, values in taken:
        first = int(TRAIN_SHARE * len(seconds))
        mixed = np.concatenate([values[:first], rng.permutation(values[first:])])
        middle = (first + len(seconds)) // 2
        times.append(seconds)
        still.append(mixed)
        changed.append(np.concatenate([mixed[:middle], mixed[middle:] + log(factor)]))
        learned.append(first)
    calm, moved = {rule: Score() for rule in RULES}, {rule: Score() for rule in RULES}
    for rule, raised in walk(times, still, learned).items():
        calm[rule].false = sum(int(own[n:].sum()) for own, n in zip(raised, learned, strict=True))
    for rule, raised in walk(times, changed, learned).items():
        for own, n in zip(raised, learned, strict=True):
            middle = (n + len(own)) // 2
            moved[rule].change(own[middle : middle + 10])
    hours = sum(float(t[-1] - t[n]) for t, n in zip(times, learned, strict=True)) / 3600
    return len(taken), hours, calm, moved


def marked(folder: Path) -> tuple[int, float, dict[AlarmRule, Score]]:
    """Links, hours away from marks, and scores by rule, on round trips in which a person marked changes."""
    times, logs, marks = [], [], []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            rows = [
                (_epoch_s(row["epoch"]), float(row["rtt"]), row["cp"])
                for row in csv.DictReader(file, delimiter=";")
            ]
        good = [
            row
            for row, before in zip(rows, [(0.0,), *rows], strict=False)
            if row[1] > 0 and row[0] > before[0]
        ]
        times.append(np.array([row[0] for row in good]))
        logs.append(np.log([row[1] for row in good]))
        marks.append(np.flatnonzero([float(row[2]) == 1 for row in good]))
    learned = [int(TRAIN_SHARE * len(t)) for t in times]
    scores, hours = {rule: Score() for rule in RULES}, 0.0
    still = []
    for seconds, own, n in zip(times, marks, learned, strict=True):
        far = np.ones(len(seconds), np.bool_)
        far[:n] = False
        for at in own.tolist():
            far[max(0, at - BEFORE_LABEL) : at + AFTER_LABEL] = False
        still.append(far)
        hours += float(np.diff(seconds, prepend=seconds[0])[far].clip(max=600).sum()) / 3600
    for rule, raised in walk(times, logs, learned).items():
        for alarms, own, far, n in zip(raised, marks, still, learned, strict=True):
            scores[rule].false += int(alarms[far].sum())
            for at in own[own >= n].tolist():
                scores[rule].change(alarms[at : at + AFTER_LABEL])
    return len(times), hours, scores


def _epoch_s(text: str) -> float:
    form = "%Y-%m-%d %H:%M:%S" if "-" in text else "%d/%m/%Y %H:%M"
    return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()


# -- what it means for a policy


def decisions(store: Path, name: str, dataset: str, policy: str, rule: AlarmRule) -> tuple[int, int, float]:
    """Decisions of a policy, those that an alarm set off, and microseconds a token."""
    setup = replace(prepare(load(name), store, dataset=dataset), alarm_rule=rule)
    header = Header(setup.header(), policy, "kernel", checkpoint_registry.resolve(store, policy, None), False)
    sink = Collect()
    runner.simulate(runner.prepare_run(header, setup, lambda: runner.load_policy(store, header)), sink)
    triggers = [event.payload["trigger"] for event in sink.events if event.type == "triggered"]
    return len(triggers), triggers.count("alarm"), 1e6 * (kpis.of_events(sink.events).time_per_token_s or 0.0)


HEAD = """# Alarms of links: false ones and delays

Generated, do not edit:

    for s in cloudpilot-iperf3 wanify-aws8 geant-traffic-matrices skyplane-grids ripe-atlas-rtt \\
        ibm-interregion-latency netlatency-seattle
    do twin --store S ingest ../shared/traces/wan/$s; done
    twin --store S ingest traces/
    python -m benchmarks.twin.change_alarms S ../shared/traces/wan/ripe-atlas-rtt > docs/measured/alarms.md

An alarm says that a link has changed in a way that its filters did not forecast; policies decide when one
is raised. *Before*, each re-initialisation of one of a link's two filters was an alarm, of the one that
returns to the mean of training. On a link that settles away from that mean this filter is wrong at every
sample, so that each sample was an alarm, though the other filter had the weight and the forecast was right.
*After*, an alarm is a change that the whole forecast did not expect, raised once, and cleared when the
forecast fits again (`twin.filters.change_alarms`). Older logs are executed again with the alarms of their
time. Both rules run on the same samples. One sample cannot tell a change from an outlier, so that neither
rule answers before the second.

Sets in which a link has three measurements or fewer (azure-interregion-rtt, intercloud-throughput and
skyplane-grids alone) have nothing to detect. Loads of geant-traffic-matrices are read as what they leave
(geant-available).
"""
WINDOW_HEAD = f"""
## Windows of scenarios

Telemetry of the held-out 30 % of a trace, as a replay has it: a sample of every link each period, with
noise of 3 %. *Stationary* are stretches of at least {STRETCH_S:.0f} s in which the true rate of a link
stays within a factor of {BAND}. An alarm in the first {SETTLING_S:.0f} s of a stretch answers to the change
that began it; a later one is **false** (aim: at most 0.05 a link-hour). *Level shifts* are where one
stretch follows another within {SETTLING_S:.0f} s, the medians more than that factor apart. Entries of the
last two columns: shifts that raised an alarm / mean delay in samples. In the window of geant-70b the load
moves slowly, and the forecast follows it. On the links of WANify every measurement is a new level: most
alarms there are level shifts that the rule before missed.

| window | links | link-h | still | false/h before | after | all/h before | after | shifts | before | after |
|---|---|---|---|---|---|---|---|---|---|---|"""
INJECTED_HEAD = f"""
## Changes put in

The same windows, the rate of a link multiplied from the middle of every stationary stretch of at least
{INJECTED_S:.0f} s to its end. Entries: found within {SETTLING_S:.0f} s / mean delay in samples.

| window | changes | {" | ".join(f"x {f} before | after" for f in FACTORS)} |
|---|---|{"---|---|" * len(FACTORS)}"""
MARKED_HEAD = f"""
## Changes that a person marked

ripe-atlas-rtt: round trips every 240 s, in which its authors marked changes of level by eye. Filters learn
from the first 70 % of each link. An alarm at a mark or in the {AFTER_LABEL - 1} samples after it answers to
it; one that is farther from every mark is false.

| | links | link-hours | false/h | marks | found / delay |
|---|---|---|---|---|---|"""
SHUFFLED_HEAD = """
## Bare samples in random order

The held-out 30 % of each link's measurements, in random order: stationary whatever they were, with all
their outliers, so that every alarm in them is false. Then a change is put into the middle (rates halved,
round trips 30 % longer). Entries of the last two columns: found within ten samples / mean delay in samples.
Of netlatency-seattle every 97th link is taken.

| set | links | link-hours | false alarms before | after | false/h before | after | changes | before | after |
|---|---|---|---|---|---|---|---|---|---|"""
POLICY_HEAD = """
## What it means for decisions

Replays of the held-out windows. Entries: decisions, those that an alarm set off, microseconds a token.

| scenario, set | policy | before | after |
|---|---|---|---|"""


def page(store: Path, marks: Path) -> Iterator[str]:
    """Yields the lines of the page."""
    yield HEAD
    windows = [window(store, *each) for each in WINDOWS]
    yield WINDOW_HEAD
    for one in windows:
        was, now = (one.scores[rule, None] for rule in RULES)
        rates = [f"{score.false / one.still_hours:.3f}" if one.still_hours else "-" for score in (was, now)]
        total = [f"{score.alarms / one.hours:.3f}" for score in (was, now)]
        cells = [one.title, one.links, f"{one.hours:,.0f}", f"{one.still_hours:,.0f}", *rates, *total]
        yield _row(*cells, was.changes, was.found, now.found)
    yield INJECTED_HEAD
    for one in windows:
        if changes := one.scores[RULES[0], FACTORS[0]].changes:
            yield _row(one.title, changes, *(one.scores[rule, f].found for f in FACTORS for rule in RULES))
    yield MARKED_HEAD
    links, hours, scores = marked(marks)
    for name, rule in zip(("before", "after"), RULES, strict=True):
        score = scores[rule]
        yield _row(name, links, f"{hours:,.0f}", f"{score.false / hours:.4f}", score.changes, score.found)
    yield SHUFFLED_HEAD
    for dataset in SERIES:
        links, hours, calm, moved = shuffled(store, dataset)
        false = [calm[rule].false for rule in RULES]
        found = [moved[rule].found for rule in RULES]
        per_hour = [f"{count / hours:.3g}" for count in false]
        yield _row(dataset, links, f"{hours:,.0f}", *false, *per_hour, links, *found)
    yield POLICY_HEAD
    for name, dataset in POLICY_RUNS:
        for policy in ("mpc", "hippo"):
            found = [decisions(store, name, dataset, policy, rule) for rule in RULES]
            yield _row(f"{name}, {dataset}", policy, *(f"{n} / {own} / {us:.2f}" for n, own, us in found))


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    for line in page(Path(sys.argv[1]), Path(sys.argv[2])):
        print(line, flush=True)
