"""Several schedulers on the jobs of one log with the power of the site: what a limit costs in waiting."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from ingest.readers import job_logs
from ingest.readers.clusters.swf_log import SwfLog
from ingest.readers.job_logs import LakeJobs
from policy.placement.registry import placement
from policy.queue.registry import recipe
from replay.logqueue import logged_power, on_nodes, run_events
from replay.logqueue.comparison import USUAL, read_to_json
from replay.logqueue.job_changes import JobNames
from replay.logqueue.logged_power import NO_OWNER, owners_of
from replay.logqueue.run_events import NO_ORIGIN, QueueOrigin
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.outage_plan import OutagePlan
from twin.nodes.runs import runs_of
from twin.power.accounts import Account, accounts, charged
from twin.power.conversion import SUPPLIES
from twin.power.figures import PowerFigures, power_figures
from twin.power.node_power import mean_power, node_site_power
from twin.power.node_sleep import NodeSleep, asleep
from twin.power.powered_queue import Owner, PowerChoices, PoweredSchedule, simulate_with_power
from twin.power.site_power import MW_PER_W
from twin.queue.jobs import UNKNOWN, Int, Prediction
from twin.queue.metrics import QueueFigures, figures
from twin.queue.rules import PREDICTSIM, QueueRules
from twin.queue.simulation import QueueSchedule
from twin.workload.selection import LogJobs, select


@dataclass(frozen=True, slots=True)
class NodeSlumber:
    """GPU-hours of nodes that slept, how often a node woke, and the mean seconds that a job waited for it."""

    gpu_h: float
    wakes: int
    avg_wake_s: float

    @classmethod
    def of(cls, done: NodeSchedule, sleep: NodeSleep) -> "NodeSlumber":
        """Returns what nodes slept in a schedule of at least one job."""
        begin_ns, end_ns = int(done.jobs.submit_ns.min()), int(done.end_ns.max())
        node, begins, ends = asleep(done, sleep.rule, begin_ns, end_ns)
        gpu_ns = (done.cluster.gpus[node] * (ends - begins)).sum()
        woke_s = 0.0 if done.woke_ns is None else float(done.woke_ns.mean()) / NS_PER_S
        return cls(float(gpu_ns) / NS_PER_S / 3600, int((ends < end_ns).sum()), woke_s)

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class PoweredResult:
    """One scheduler: its name, whether limits and delays were kept, its figures, and the accounts."""

    policy: str
    limited: bool
    queue: QueueFigures
    power: PowerFigures
    ledger: tuple[Account, ...] = ()
    run: str | None = None
    """Id of the run that was kept."""
    slept: NodeSlumber | None = None
    """How long nodes slept; None: they never do."""

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        said = {"policy": self.policy, "limited": self.limited, "run": self.run, **self.queue.to_json()}
        ledger = {"ledger": [one.to_json() for one in self.ledger]} if self.ledger else {}
        slept = {} if self.slept is None else {"sleep": self.slept.to_json()}
        return {**said, "power": self.power.to_json(), **slept, **ledger}


@dataclass(frozen=True, eq=False)
class PoweredComparison:
    """The jobs of a log, what is asked of power, and a result for each scheduler: without limits, then, where
    any is asked, with them."""

    log: LogJobs
    prediction: Prediction
    rules: QueueRules
    choices: PowerChoices
    owner: Owner | None
    results: tuple[PoweredResult, ...]
    sleep: NodeSleep | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin queue --json` with power."""
        model, chosen = self.choices.model, self.choices
        return {
            "schema": "twin.queue/1",
            "log": self.log.name,
            "processors": self.log.processors,
            "prediction": self.prediction,
            "rules": self.rules.name,
            "power_model": {
                "name": model.name,
                "idle_w": model.idle_mw / MW_PER_W,
                "busy_w": (model.idle_mw + model.job_mw) / MW_PER_W,
                "stages": [stage.name for stage in model.chain.stages],
            },
            "power_cap_w": chosen.cap_w,
            "ramp_limit_w": chosen.rise_w,
            "ramp_window_s": chosen.window_s if chosen.rise_w is not None else None,
            "carbon": chosen.carbon.name if chosen.carbon else None,
            "price": chosen.price.name if chosen.price else None,
            "defer": chosen.defer,
            "max_delay_s": chosen.longest_ns / 1e9 if chosen.defer else None,
            "signal_forecast": chosen.forecast if chosen.defer else None,
            "sleep": None if self.sleep is None else self.sleep.to_json(),
            "ledger_by": self.owner,
            "results": [one.to_json() for one in self.results],
            **read_to_json(self.log),
        }


def compare_with_power(
    source: Path | LakeJobs, choices: PowerChoices, policies: Sequence[str] = (), *,
    processors: int | None = None, prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM,
    owner: Owner | None = None, supplies: str | None = None, keep: Path | None = None,
    progress: Progress = SILENT,
) -> PoweredComparison:  # fmt: skip
    """Returns what each scheduler makes of the jobs of a log, and what its site draws; with `owner` also an
    account for each user or group. `supplies`: power supplies of `twin.power.conversion.SUPPLIES`. With
    `keep` each schedule is a run of that store, with its power and an account of each user or group; not with
    limits.

    Raises:
        InputError: the log cannot be read or has no job. NotFoundError: the lake has none.
        UsageError: an unknown scheduler, or limits that it or a job cannot keep.
    """
    usual = [name for name in USUAL if choices.rise_w is None or name != "conservative"]
    recipes = [recipe(name) for name in dict.fromkeys(policies or usual)]
    read = job_logs.read(source)
    log = select(read, rules, processors)
    owners = _owners(read, log, owner) if owner is not None else None
    if supplies is not None:
        model = choices.model.with_supplies(log.processors, SUPPLIES[supplies])
        choices = replace(choices, model=model)
    if keep is not None:
        logged_power.to_json(choices)  # refuses limits before anything is played
        choices = replace(choices, owner=owner or "user")
    ways = [choices.unlimited(), choices] if choices.limited else [choices]
    results = []
    progress.start(len(recipes) * len(ways), "queue with power", "schedules")
    for one in recipes:
        for way in ways:
            done = simulate_with_power(log.jobs, log.processors, one, way, prediction=prediction, rules=rules)
            kept = None
            if keep is not None:
                kept = run_events.record(
                    keep, log, done.schedule, one.name, prediction=prediction, rules=rules,
                    origin=QueueOrigin(source.name.partition("/")[0]) if isinstance(source, LakeJobs)
                    else NO_ORIGIN, power=way,
                )  # fmt: skip
            results.append(replace(_result(one.name, done, way, owners), run=kept))
            progress.advance(1, one.name)
    return PoweredComparison(log, prediction, rules, choices, owner, tuple(results))


def compare_on_nodes_with_power(
    source: Path | LakeJobs, nodes: str, choices: PowerChoices, policies: Sequence[str] = (),
    placements: Sequence[str] = (), *, prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM,
    owner: Owner | None = None, outages: OutagePlan = on_nodes.NEVER_OUT, sleep: NodeSleep | None = None,
    progress: Progress = SILENT,
) -> PoweredComparison:  # fmt: skip
    """Returns what each scheduler with each placement makes of the jobs on nodes, and what the site draws:
    each GPU the power of its own model, with the conversion of `choices`; its own model is not heeded. A node
    draws nothing from a fault to its repair; work that a fault loses is charged to the owner of its job. With
    `sleep` nodes without jobs sleep, and jobs wait for them.

    Raises:
        InputError: a file cannot be read or has no job. UsageError: an unknown scheduler or placement, a GPU
        whose power is not known, jobs that share GPUs, or limits, which are kept on a pool alone.
    """
    if choices.limited:
        raise UsageError(
            "a power cap, a ramp limit and delays are kept on one pool: leave them or --nodes out"
        )
    recipes = [recipe(name) for name in dict.fromkeys(policies or on_nodes.USUAL)]
    places = [placement(name) for name in dict.fromkeys(placements or (on_nodes.USUAL_PLACEMENT,))]
    asked = on_nodes.read_on_nodes(source, nodes, rules, places)
    choices = replace(choices, model=mean_power(asked.cluster, choices.model.chain))
    results, log = list[PoweredResult](), None
    progress.start(len(recipes) * len(places), "queue on nodes with power", "schedules")
    for one, place in product(recipes, places):
        played = partial(
            simulate_on_nodes, asked.jobs, asked.demands, asked.cluster, one, place, prediction=prediction,
            rules=rules, sleep=None if sleep is None else sleep.rule,
        )  # fmt: skip
        done = outages.play(asked.cluster, asked.jobs, played)
        schedule, runs = done.in_gpus, runs_of(done)
        held, power = node_site_power(done, runs, choices.model.chain, sleep)
        log = LogJobs(
            asked.name, asked.cluster.total_gpus, schedule.jobs, asked.rejects,
            (*asked.notes, *outages.notes), asked.ids, asked.users,
        )  # fmt: skip
        owners = None
        if owner is not None:
            owners = _owners(job_logs.read(source), log, owner)
        powered = PoweredSchedule(schedule, schedule.jobs.submit_ns, power)
        slept = None if sleep is None else NodeSlumber.of(done, sleep)
        result = _result(f"{one.name}, {place.name}", powered, choices, owners, (held, runs.job))
        results.append(replace(result, slept=slept))
        progress.advance(1, one.name)
    assert log is not None, "there is a scheduler and a placement"
    return PoweredComparison(log, prediction, rules, choices, owner, tuple(results), sleep)


def _result(
    policy: str, done: PoweredSchedule, choices: PowerChoices, owners: Sequence[str] | None,
    runs: tuple[QueueSchedule, Int] | None = None,
) -> PoweredResult:  # fmt: skip
    """The figures of a schedule; `runs`: what held GPUs when, and the jobs of it, if not each job once."""
    ledger: tuple[Account, ...] = ()
    if owners is not None:
        held, job_of = runs or (done.schedule, None)
        ledger = accounts(charged(held, done.power, choices.carbon, choices.price), owners, job_of)
    found, power = figures(done.schedule), power_figures(done, choices)
    return PoweredResult(policy, choices.limited, found, power, ledger)


def _owners(read: SwfLog, log: LogJobs, owner: Owner) -> list[str]:
    """Returns the user or the group of each job, by name."""
    if owner == "user":
        return owners_of(owner, log.jobs, JobNames(log.ids, log.users).user)
    group = dict(zip(read.column("job").tolist(), read.column("group").tolist(), strict=True))
    found = (int(group[number]) for number in log.jobs.number.tolist())
    return [NO_OWNER if one == UNKNOWN else str(one) for one in found]
