"""Several schedulers and placements on the jobs of one log, on the nodes of one cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.parsing import csv_blocks
from ingest.readers import job_logs
from ingest.readers.clusters import openb_lists, swf_log
from ingest.readers.job_logs import LakeJobs
from policy.placement.registry import PLACEMENTS, placement
from policy.queue.registry import recipe
from replay.logqueue import run_events
from replay.logqueue.comparison import read_to_json
from replay.logqueue.run_events import NO_ORIGIN, QueueOrigin
from twin.nodes.metrics import NodeFigures, node_figures
from twin.nodes.on_nodes import check_on_nodes, simulate_on_nodes
from twin.nodes.outage_plan import OutagePlan
from twin.nodes.selection import NodeJobs, cluster_of, select_log, select_pods
from twin.placement.cluster import NodeCluster
from twin.placement.recipe import Gang, PlacementRecipe
from twin.queue.jobs import Prediction
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import PREDICTSIM, QueueRules

USUAL = ("fcfs", "easy", "easy-sjbf")
"""Schedulers that are compared on nodes if none are named."""
USUAL_PLACEMENT = next(iter(PLACEMENTS))
NEVER_OUT = OutagePlan()


@dataclass(frozen=True, eq=False)
class NodeComparison:
    """The jobs of a log on nodes, and the figures of each scheduler and placement by their names."""

    log: NodeJobs
    prediction: Prediction
    rules: QueueRules
    figures: dict[tuple[str, str], NodeFigures]
    runs: dict[tuple[str, str], str] = field(default_factory=dict)
    """Ids of the runs that were kept."""
    scenario: str | None = None
    synthetic: bool = False
    outages: OutagePlan = NEVER_OUT

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin queue --nodes --json`."""
        cluster = self.log.cluster
        return {
            "schema": "twin.queue/1",
            "log": self.log.name,
            "scenario": self.scenario,
            "synthetic_arrivals": self.synthetic,
            "nodes": len(cluster),
            "gpus": cluster.total_gpus,
            "gpu_models": dict(zip(cluster.models, cluster.gpus_of(range(len(cluster.models))), strict=True)),
            "prediction": self.prediction,
            "rules": self.rules.name,
            "synthetic_faults": self.outages.mtbf_s > 0,
            "results": [
                {
                    "policy": policy, "placement": place, "run": self.runs.get((policy, place)),
                    **one.to_json(),
                }
                for (policy, place), one in self.figures.items()
            ],
            **read_to_json(self.log),
        }  # fmt: skip


def compare_on_nodes(
    source: Path | LakeJobs, nodes: str, policies: Sequence[str] = (), placements: Sequence[str] = (), *,
    prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM, outages: OutagePlan = NEVER_OUT,
    keep: Path | None = None, progress: Progress = SILENT,
) -> NodeComparison:  # fmt: skip
    """Returns what each scheduler with each placement makes of the jobs of a log; with `keep` each is a run
    of that store.

    `nodes` are words, as `8 x 8 A100-80, 4 x 8 V100`, or the name of a CSV file of nodes.

    Raises: InputError: a file cannot be read or has no job. UsageError: an unknown scheduler or placement,
        no nodes, a scheduler that cannot be played on nodes, or jobs that faults let never end.
    """
    recipes = [recipe(name) for name in dict.fromkeys(policies or USUAL)]
    places = [placement(name) for name in dict.fromkeys(placements or (USUAL_PLACEMENT,))]
    log = read_on_nodes(source, nodes, rules, places)
    log = replace(log, notes=(*log.notes, *outages.notes))
    dataset = source.name.partition("/")[0] if isinstance(source, LakeJobs) else None
    return of_node_jobs(
        log, recipes, places, prediction=prediction, rules=rules, outages=outages, keep=keep,
        origin=QueueOrigin(dataset, note="; ".join(outages.notes)), progress=progress,
    )  # fmt: skip


def read_on_nodes(
    source: Path | LakeJobs, nodes: str, rules: QueueRules, places: Sequence[PlacementRecipe]
) -> NodeJobs:
    """Returns the jobs of a log, or of a list of pods, that nodes can run under all these placements.

    Raises:
        InputError: a file cannot be read or has no job. UsageError: no nodes.
    """
    cluster, note = cluster_named(nodes)
    log = _jobs_of(source, cluster, rules, [one.gang for one in places])
    return replace(log, notes=(*log.notes, *note))


def of_node_jobs(
    log: NodeJobs, recipes: Sequence[QueueRecipe], places: Sequence[PlacementRecipe], *,
    prediction: Prediction, rules: QueueRules, outages: OutagePlan = NEVER_OUT, keep: Path | None = None,
    seed: int = 0, origin: QueueOrigin = NO_ORIGIN, progress: Progress = SILENT,
) -> NodeComparison:  # fmt: skip
    """Returns what schedulers and placements make of jobs that were read; with `keep` each is a run.

    Raises:
        UsageError: a scheduler that cannot be played on nodes.
    """
    both = [(one, place) for one in recipes for place in places]
    for one, place in both:
        check_on_nodes(log.jobs, log.demands, log.cluster, one, place, rules)
    progress.start(len(both), "queue", "schedules")
    found, runs = dict[tuple[str, str], NodeFigures](), dict[tuple[str, str], str]()
    for one, place in both:
        progress.advance(0, f"{one.name}, {place.name}")
        played = partial(
            simulate_on_nodes, log.jobs, log.demands, log.cluster, one, place, prediction=prediction,
            rules=rules, seed=seed,
        )  # fmt: skip
        done = outages.play(log.cluster, log.jobs, played)
        found[one.name, place.name] = node_figures(done)
        if keep is not None:
            runs[one.name, place.name] = run_events.record(
                keep, log, done, one.name, prediction=prediction, rules=rules, placement=place.name,
                origin=origin,
            )  # fmt: skip
        progress.advance(1, f"{one.name}, {place.name}")
    return NodeComparison(log, prediction, rules, found, runs, outages=outages)


def cluster_named(nodes: str) -> tuple[NodeCluster, tuple[str, ...]]:
    """Returns the cluster that words or a file describe, and what is to be known of it.

    Raises:
        InputError: the file cannot be read. UsageError: the words describe no cluster.
    """
    path = Path(nodes)
    if not nodes.strip() or (not path.suffix and not path.exists()):
        return NodeCluster.parse(nodes), ()
    found = openb_lists.node_list(path)
    notes = []
    if bare := found.without_gpus:
        notes.append(
            f"{len(bare):,} nodes of {found.name} have no GPUs and are left out (first: row {bare[0]})"
        )
    if found.rejects:
        first = found.rejects[0]
        notes.append(
            f"{len(found.rejects):,} rows of {found.name} are no nodes "
            f"(first: row {first.row}, {first.reason})"
        )
    return cluster_of(found), tuple(notes)


def _jobs_of(
    source: Path | LakeJobs, cluster: NodeCluster, rules: QueueRules, gangs: Sequence[Gang]
) -> NodeJobs:
    """Returns the jobs of a log or of the lake, or of a list of pods."""
    if isinstance(source, Path) and openb_lists.is_pods(csv_blocks.header(swf_log.opened(source).head)):
        if not rules.cuts:
            raise UsageError(f"{source}: rules {rules.name} read the Standard Workload Format; take others")
        return select_pods(openb_lists.pod_list(source), cluster, gangs)
    return select_log(job_logs.read(source), cluster, rules, gangs)
