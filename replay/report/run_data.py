"""Data of the report, folded from the events of a run in one pass; long series are thinned."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ingest.lake.undated import DEFAULT_START
from replay.log.events import Event, Json
from replay.log.fold import Fold, fold
from replay.metrics.formatting import is_synthetic
from replay.metrics.kpis import KpiFold, Kpis
from twin.core.domain import Pair

SERIES_POINTS = 800
"""A series is halved when it has grown to twice this length; a chart is about as wide in pixels."""
LAID_S = 366 * 86400.0
"""How long after the arbitrary day of data without dates a run counts as undated."""
LINK_POINTS = 200
"""The same for one link among many, whose chart is small."""


class ChartSeries:
    """(time, values...) points in order; at 2 x `kept` points, neighbours are merged in pairs.

    Every point stands for the same number of samples: of these it is the one furthest from the mean of the
    series, so that a short dip is not lost.
    """

    def __init__(self, kept: int = SERIES_POINTS) -> None:
        self.points: list[tuple[float, ...]] = []
        self._limit = 2 * kept
        self._stride = 1  # samples a point stands for
        self._merged = 0  # samples in the last point so far
        self._count, self._sum = 0, 0.0

    def add(self, *point: float) -> None:
        """Adds a point; `point[0]` is the time in seconds."""
        self._count, self._sum = self._count + 1, self._sum + point[1]
        if self.points and self._merged < self._stride:
            self.points[-1] = self._further(self.points[-1], point)
            self._merged += 1
            return
        self.points.append(point)
        self._merged = 1
        if len(self.points) >= self._limit:
            self._halve()

    @property
    def mean(self) -> float | None:
        """Mean of all samples, also of those that were merged away; None without any."""
        return self._sum / self._count if self._count else None

    def _further(self, *points: tuple[float, ...]) -> tuple[float, ...]:
        mean = self._sum / self._count
        return max(points, key=lambda point: abs(point[1] - mean))

    def _halve(self) -> None:
        pairs = zip(self.points[::2], self.points[1::2], strict=True)
        self.points = [self._further(*pair) for pair in pairs]
        self._merged += self._stride
        self._stride *= 2


@dataclass(frozen=True, slots=True)
class PlanSpan:
    """A plan in force from `start_s` to `end_s`, after a pause of `pause_s`."""

    start_s: float
    end_s: float
    pause_s: float
    plan: Json
    moved_bytes: int
    job: str = ""


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """One decision as the page shows it."""

    number: int
    time_s: float
    trigger: str
    details: Json
    wall: Json
    job: str
    outcome: list[float] = field(default_factory=lambda: [0.0, 0.0])  # iterations until the next, seconds


def _link_series() -> defaultdict[Pair, ChartSeries]:
    return defaultdict(lambda: ChartSeries(LINK_POINTS))


@dataclass
class RunData:
    """A run, ready to be drawn. Times in simulated seconds."""

    header: Json = field(default_factory=dict)
    finished: bool = False
    end_s: float = 0.0
    events: int = 0
    observed_bps: dict[Pair, ChartSeries] = field(default_factory=_link_series)
    filtered_bps: dict[Pair, ChartSeries] = field(
        default_factory=_link_series
    )  # with the sd of its logarithm
    spans: list[PlanSpan] = field(default_factory=list)
    aborted_moves: list[tuple[str, float, float]] = field(default_factory=list)  # job, from, to
    tokens: ChartSeries = field(default_factory=ChartSeries)  # of complete iterations, cumulated
    iteration_s: dict[str, ChartSeries] = field(default_factory=lambda: defaultdict(ChartSeries))  # by job
    utilisation: list[ChartSeries] = field(default_factory=list)  # per domain, of the time in the plan
    egress_usd: ChartSeries = field(default_factory=ChartSeries)
    gpu_usd: ChartSeries = field(default_factory=ChartSeries)
    power_w: dict[str, ChartSeries] = field(default_factory=lambda: defaultdict(ChartSeries))  # by job
    energy_j: float = 0.0  # its integral over the run
    training_bytes: dict[Pair, int] = field(default_factory=lambda: defaultdict(int))
    moved_bytes: dict[Pair, int] = field(default_factory=lambda: defaultdict(int))
    time_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by use
    computing_s: float = 0.0  # of the time in iterations, mean over the domains in the plan
    decisions: list[ShownDecision] = field(default_factory=list)
    updates: list[Json] = field(default_factory=list)  # of a policy's weights: stage, update, steps, metrics
    outages: list[tuple[Pair, float, float]] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    alarms: dict[Pair, list[float]] = field(default_factory=dict)

    @property
    def domains(self) -> list[str]:
        """Names of the domains, by number."""
        return [domain["name"] for domain in self.header["scenario"]["cluster"]["domains"]]

    @property
    def jobs(self) -> list[str]:
        """Names of the jobs that had a plan, in order of their first; [""] for one without a name."""
        return list(dict.fromkeys(span.job for span in self.spans))

    @property
    def is_replay(self) -> bool:
        """True where plans were decided or applied; the log of a training holds neither."""
        return bool(self.spans or self.decisions)

    @property
    def dataset(self) -> str:
        """The WAN data set that the links came from."""
        return str(self.header["dataset"] or self.header["scenario"]["wan"]["dataset"])

    @property
    def synthetic(self) -> bool:
        """True where the links are generated rather than measured."""
        return is_synthetic(self.dataset, self.header.get("note", ""))

    @property
    def origin_s(self) -> float:
        """Time of the begin of the run in the trace, seconds since 1970."""
        return float((self.header.get("live") or self.header).get("origin_epoch_ns", 0)) / 1e9

    @property
    def undated(self) -> bool:
        """True where the files of the links have no dates, so that they were laid at an arbitrary day; no
        link in the lake was measured in its year."""
        since_s = self.origin_s - DEFAULT_START.timestamp()
        return 0 <= since_s < LAID_S

    def sent_bytes(self, pair: Pair) -> int:
        """Bytes of training and moves over a link."""
        return self.training_bytes.get(pair, 0) + self.moved_bytes.get(pair, 0)

    @property
    def used_links(self) -> list[Pair]:
        """Links that carried bytes, the busiest first."""
        pairs = {*self.training_bytes, *self.moved_bytes}
        total = {pair: self.training_bytes[pair] + self.moved_bytes[pair] for pair in pairs}
        return sorted((pair for pair in total if total[pair]), key=lambda pair: (-total[pair], pair))


def fold_run(events: Iterable[Event]) -> tuple[RunData, Kpis]:
    """Returns the data of the page and the key figures of a run, from its events alone."""
    figures = KpiFold()
    return fold(events, _RunFold(), figures).end(), figures.kpis()


class _RunFold(Fold):
    """Builds `RunData` event by event."""

    def __init__(self) -> None:
        self.run = RunData()
        self._trigger = ""
        self._down: dict[Pair, float] = {}
        self._in_force: dict[str, int] = {}  # number of the span that a job is in
        self._last: dict[str, ShownDecision] = {}  # decision of each job
        self._egress_usd = self._gpu_usd = 0.0
        self._tokens = 0

    def add(self, event: Event) -> None:
        """Adds an event; types that the page does not show only advance the clock."""
        self.run.events += 1
        self.run.end_s = event.sim_ns / 1e9
        super().add(event)

    def end(self) -> RunData:
        """Returns the data, with open spans and outages closed at the end of the run."""
        run = self.run
        for pair, since_s in self._down.items():
            run.outages.append((pair, since_s, run.end_s))
        for job in list(self._in_force):
            self._close(job, run.end_s)
        return run

    def _close(self, job: str, end_s: float) -> None:
        """Ends the span of a job's plan, if it has one."""
        number = self._in_force.pop(job, None)
        if number is not None:
            self.run.spans[number] = replace(self.run.spans[number], end_s=end_s)

    def _on_run_started(self, event: Event, payload: Json) -> None:
        self.run.header = payload
        self.run.utilisation = [ChartSeries() for _ in self.run.domains]

    def _on_link_observed(self, event: Event, payload: Json) -> None:
        for i, j, bandwidth_bps, _ in payload["samples"]:
            self.run.observed_bps[i, j].add(payload["sampled_ns"] / 1e9, bandwidth_bps)

    def _on_state_estimated(self, event: Event, payload: Json) -> None:
        for i, j, bandwidth_bps, sd_log, _ in payload["links"]:
            self.run.filtered_bps[i, j].add(event.sim_ns / 1e9, bandwidth_bps, sd_log)

    def _on_triggered(self, event: Event, payload: Json) -> None:
        self._trigger = payload["trigger"]
        for pairs in payload["reasons"].get("alarm", ()):
            for i, j in pairs:
                self.run.alarms.setdefault((i, j), []).append(event.sim_ns / 1e9)

    def _on_policy_updated(self, event: Event, payload: Json) -> None:
        self.run.updates.append(payload)

    def _on_decided(self, event: Event, payload: Json) -> None:
        shown = {key: value for key, value in payload.items() if key != "observation"}
        decision = ShownDecision(
            payload["number"], event.sim_ns / 1e9, self._trigger, shown, event.wall, event.job
        )
        self.run.decisions.append(decision)
        self._last[event.job] = decision

    def _on_plan_applied(self, event: Event, payload: Json) -> None:
        run, pause_s = self.run, payload["pause_ns"] / 1e9
        self._close(event.job, event.sim_ns / 1e9 - pause_s)
        self._in_force[event.job] = len(run.spans)
        moved_bytes = sum(size for _, _, size in payload["moved_bytes"])
        now_s = event.sim_ns / 1e9
        run.spans.append(PlanSpan(now_s, now_s, pause_s, payload["plan"], moved_bytes, event.job))
        run.time_s["moving"] += pause_s
        self._power(event.job, now_s - pause_s, pause_s, payload)
        self._charge(event, payload)

    def _on_iteration_done(self, event: Event, payload: Json) -> None:
        run, start_s = self.run, payload["start_ns"] / 1e9
        for count, duration_ns in payload["durations"]:
            run.iteration_s[event.job].add(start_s, duration_ns / 1e9)
            start_s += count * duration_ns / 1e9
        stalled_s = payload["stalled_ns"] / 1e9
        run.time_s["stalled"] += stalled_s
        run.time_s["training"] += start_s - payload["start_ns"] / 1e9 - stalled_s
        active_ns = sum(payload["active_ns"])
        length_s = start_s - payload["start_ns"] / 1e9
        run.computing_s += length_s * sum(payload["compute_ns"]) / active_ns if active_ns else 0.0
        if event.job in self._last:
            self._last[event.job].outcome[0] += payload["count"]
            self._last[event.job].outcome[1] += length_s
        for k, (compute_ns, active_ns) in enumerate(
            zip(payload["compute_ns"], payload["active_ns"], strict=True)
        ):
            if active_ns:
                run.utilisation[k].add(payload["start_ns"] / 1e9, compute_ns / active_ns)
        self._tokens += payload["tokens"]
        run.tokens.add(event.sim_ns / 1e9, self._tokens)
        self._power(event.job, payload["start_ns"] / 1e9, length_s, payload)
        self._charge(event, payload)

    def _on_job_preempted(self, event: Event, payload: Json) -> None:
        self._close(event.job, event.sim_ns / 1e9)

    _on_job_finished = _on_job_failed = _on_job_preempted

    def _on_time_lost(self, event: Event, payload: Json) -> None:
        start_s, lost_s, reason = payload["start_ns"] / 1e9, payload["lost_ns"] / 1e9, payload["reason"]
        if reason == "moving":  # no plan came of it
            self._close(event.job, start_s)
            self.run.aborted_moves.append((event.job, start_s, start_s + lost_s))
            reason = "unfinished move"
        self.run.time_s[reason] += lost_s
        self._power(event.job, start_s, lost_s, payload)
        self._charge(event, payload)

    def _on_link_failed(self, event: Event, payload: Json) -> None:
        self._down[payload["src"], payload["dst"]] = event.sim_ns / 1e9

    def _on_link_restored(self, event: Event, payload: Json) -> None:
        pair = (payload["src"], payload["dst"])
        self.run.outages.append((pair, self._down.pop(pair, 0.0), event.sim_ns / 1e9))

    def _on_gpu_failed(self, event: Event, payload: Json) -> None:
        where = self.run.domains[payload["domain"]]
        self.run.faults.append((event.sim_ns / 1e9, f"{where} lost {payload['gpus']} GPUs"))

    def _on_gpu_repaired(self, event: Event, payload: Json) -> None:
        where = self.run.domains[payload["domain"]]
        self.run.faults.append((event.sim_ns / 1e9, f"{where} got {payload['gpus']} GPUs back"))

    def _on_domain_slowed(self, event: Event, payload: Json) -> None:
        where = self.run.domains[payload["domain"]]
        self.run.faults.append(
            (event.sim_ns / 1e9, f"{where} computes at {payload['factor']:.2f} x the time")
        )

    def _on_run_finished(self, event: Event, payload: Json) -> None:
        self.run.finished = True

    def _power(self, job: str, start_s: float, length_s: float, payload: Json) -> None:
        """Adds a stretch of constant power, that of the GPUs which the job holds."""
        self.run.energy_j += payload["energy_j"]
        if length_s > 0:
            self.run.power_w[job].add(start_s, payload["energy_j"] / length_s)

    def _charge(self, event: Event, payload: Json) -> None:
        run, time_s = self.run, event.sim_ns / 1e9
        self._egress_usd += payload["egress_usd"]
        self._gpu_usd += payload["gpu_usd"]
        run.egress_usd.add(time_s, self._egress_usd)
        run.gpu_usd.add(time_s, self._gpu_usd)
        for name, sums in (("wan_bytes", run.training_bytes), ("moved_bytes", run.moved_bytes)):
            for i, j, size in payload.get(name, ()):
                sums[i, j] += size
