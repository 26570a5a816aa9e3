"""Schedulers on the jobs of a log over several sites, with links between them and data to bring along."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from ingest.parsing.reader import Reject
from policy.placement.sites import SITE_CHOICES, site_choice
from replay.logqueue import run_events
from replay.logqueue.comparison import read_to_json
from replay.logqueue.run_events import NO_ORIGIN, QueueOrigin
from replay.queueing import span_rates
from twin.core.seeds import generator
from twin.queue.jobs import QueueJobs
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import INSTANT
from twin.scenario import cluster_and_jobs
from twin.settings.job_queue import QueueScenario
from twin.settings.scenario_file import ControlSettings, Scenario
from twin.sites.figures import SiteFigures, site_figures
from twin.sites.inputs import (
    FULL_RATE,
    MOST_KB,
    NOWHERE,
    SiteJobs,
    SiteLinks,
    joined,
    single_sites,
)
from twin.sites.simulation import SiteWorld, simulate_on_sites
from twin.traces import measured_links
from twin.workload.selection import LogJobs

USUAL_CHOICE = next(iter(SITE_CHOICES))
NOWHERE_FITS = "fits on no site, alone or with others"
"""Reason of a job that the empty sites cannot run."""


@dataclass(frozen=True, eq=False)
class SiteInputs:
    """The jobs of a log that the sites can run, what they ask for, the sites, and what is to be known."""

    log: LogJobs
    asked: SiteJobs
    world: SiteWorld


@dataclass(frozen=True, eq=False)
class SiteComparison:
    """The jobs of a log over sites, and the figures of each scheduler by name."""

    inputs: SiteInputs
    scenario: str
    placement: str
    figures: dict[str, SiteFigures]
    runs: dict[str, str] = field(default_factory=dict)
    """Ids of the runs that were kept."""
    synthetic: bool = False

    @property
    def log(self) -> LogJobs:
        """Returns the jobs, with the rows left out and the notes."""
        return self.inputs.log

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin replay --scenario QUEUE --json`."""
        world = self.inputs.world
        return {
            "schema": "twin.queue/1",
            "log": self.log.name,
            "scenario": self.scenario,
            "synthetic_arrivals": self.synthetic,
            "sites": dict(zip(world.names, world.gpus.tolist(), strict=True)),
            "rules": INSTANT.name,
            "results": [
                {"policy": name, "placement": self.placement, "run": self.runs.get(name), **one.to_json()}
                for name, one in self.figures.items()
            ],
            **read_to_json(self.log),
        }


def inputs_of(store: Path, scenario: QueueScenario, log: LogJobs) -> SiteInputs:
    """Returns the jobs of a log that the sites of a scenario can run, and the sites with their links.

    Raises:
        NotFoundError: the lake lacks the links. UsageError: no job fits, or the sites cannot be built.
    """
    assert scenario.cluster is not None and scenario.wan is not None, "the settings say both"
    cluster = cluster_and_jobs.cluster(scenario.cluster, None)
    names = tuple(one.name for one in cluster.domains)
    trace = measured_links.load(store, scenario.wan, names)
    links = SiteLinks.of_trace(trace, cluster.usd_per_gb)
    gpus = np.array([one.gpus for one in cluster.domains], np.int64)
    sizes, size = np.unique(log.jobs.processors, return_inverse=True)
    options = single_sites(sizes, gpus, len(links.at))
    notes = [f"links of {', '.join(trace.note.splitlines()[:1])}" if trace.note else "links as measured"]
    notes.append(f"links are known for {trace.end_ns / NS_PER_S:,.0f} s; then they stay as they are")
    if scenario.spanning != "never":
        larger = sizes[sizes > gpus.max()] if scenario.spanning == "larger" else sizes
        wanted = frozenset(larger.tolist())
        over, plans = span_rates.spans(sizes, cluster, _training(scenario), trace, links.at, wanted)
        options = joined(options, over)
        notes.append(
            f"{len(plans):,} ways over several sites, at {over.rate.min(initial=FULL_RATE) / 10:g} to "
            f"{over.rate.max(initial=0) / 10:g} % of the recorded rate: plans of {scenario.model}"
        )
    fits = np.diff(options.first)[size] > 0
    left_out = [
        Reject(int(number), "job", f"{number} with {gpus_} GPUs", NOWHERE_FITS)
        for number, gpus_ in zip(log.jobs.number[~fits], log.jobs.processors[~fits], strict=True)
    ]
    kept = log.jobs.select(fits)
    asked, note = _data(scenario, names, kept, np.ascontiguousarray(size[fits], np.int64))
    made = replace(
        log, jobs=kept, processors=int(gpus.sum()), rejects=(*log.rejects, *left_out),
        notes=(*log.notes, *notes, *note),
    )  # fmt: skip
    return SiteInputs(made, asked, SiteWorld(names, gpus, links, options))


def _training(scenario: QueueScenario) -> Any:
    """The training job whose plan gives spanning jobs their rate."""
    assert scenario.model is not None and scenario.job is not None, "the settings say both"
    assert scenario.cluster is not None and scenario.wan is not None, "the settings say both"
    made = Scenario(
        name=scenario.name, model=scenario.model, job=scenario.job, cluster=scenario.cluster,
        wan=scenario.wan, control=ControlSettings(period_s=60),
    )  # fmt: skip
    return cluster_and_jobs.job(made)


def _data(
    scenario: QueueScenario, names: tuple[str, ...], jobs: QueueJobs, size: Any
) -> tuple[SiteJobs, list[str]]:
    """What jobs ask for, with data as the scenario draws them; a note that they are synthetic."""
    count = len(jobs)
    if scenario.data is None or not scenario.data.gb:
        return SiteJobs(size, np.zeros(count, np.int64), np.full(count, NOWHERE, np.int64)), []
    wanted, random = scenario.data, generator(scenario.seed, "queue data")
    drawn_kb = wanted.gb * 1e6 * np.exp(wanted.sd * random.standard_normal(count))
    share = np.array([wanted.sites.get(name, 0.0 if wanted.sites else 1.0) for name in names])
    at = random.choice(len(names), count, p=share / share.sum()).astype(np.int64)
    note = (
        f"SYNTHETIC data: {wanted.gb:g} GB in the median, at sites drawn with seed {scenario.seed}; the log "
        "says nothing of them"
    )
    return SiteJobs(size, np.minimum(np.rint(drawn_kb), MOST_KB).astype(np.int64), at), [note]


def of_site_jobs(
    inputs: SiteInputs, recipes: Sequence[QueueRecipe], scenario: QueueScenario, *, keep: Path | None = None,
    origin: QueueOrigin = NO_ORIGIN, progress: Progress = SILENT,
) -> SiteComparison:  # fmt: skip
    """Returns what schedulers make of the jobs over the sites; with `keep` each is a run of that store.

    Raises:
        UsageError: a scheduler that cannot be played over sites, an unknown placement, or a link that stays
            dead while a job waits for it.
    """
    choice = site_choice(scenario.placement or USUAL_CHOICE)
    progress.start(len(recipes), "queue over sites", "schedulers")
    found, runs = dict[str, SiteFigures](), dict[str, str]()
    for one in recipes:
        done = simulate_on_sites(
            inputs.log.jobs, inputs.asked, inputs.world, one, choice, prediction=scenario.prediction
        )
        found[one.name] = site_figures(done)
        if keep is not None:
            runs[one.name] = run_events.record(
                keep, inputs.log, done, one.name, prediction=scenario.prediction, rules=INSTANT,
                placement=choice.name, origin=origin,
            )  # fmt: skip
        progress.advance(1, one.name)
    return SiteComparison(inputs, scenario.name, choice.name, found, runs)
