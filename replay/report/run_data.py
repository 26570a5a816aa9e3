"""What the report shows of a run, folded from its events in one pass; long series are thinned."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from replay.log.events import Event
from replay.metrics.kpis import Fold, Kpis
from replay.metrics.formatting import made_up

Json = dict[str, Any]
Pair = tuple[int, int]
SERIES_POINTS = 800
"""A series is halved when it has grown to twice this length; a chart is about as wide in pixels."""
LINK_POINTS = 200
"""The same for one link among many, whose chart is small."""


class Series:
    """(time, values...) points in order; beyond 2 x `kept` neighbours are merged, extremes kept.

    Of the samples that one point stands for, as many everywhere, the one furthest from the mean of the series
    stays, so a short dip is not lost.
    """

    def __init__(self, kept: int = SERIES_POINTS) -> None:
        self.points: list[tuple[float, ...]] = []
        self._most = 2 * kept
        self._stride = 1  # samples a point stands for
        self._open = 0  # samples that the last point stands for so far
        self._count, self._sum = 0, 0.0

    def add(self, *point: float) -> None:
        """One more point; `point[0]` is the time in seconds."""
        self._count, self._sum = self._count + 1, self._sum + point[1]
        if self.points and self._open < self._stride:
            self.points[-1] = self._further(self.points[-1], point)
            self._open += 1
            return
        self.points.append(point)
        self._open = 1
        if len(self.points) >= self._most:
            self._halve()

    def _further(self, *points: tuple[float, ...]) -> tuple[float, ...]:
        mean = self._sum / self._count
        return max(points, key=lambda point: abs(point[1] - mean))

    def _halve(self) -> None:
        pairs = zip(self.points[::2], self.points[1::2], strict=True)
        self.points = [self._further(*pair) for pair in pairs]
        self._open += self._stride
        self._stride *= 2


def _of_link() -> Series:
    return Series(LINK_POINTS)


@dataclass(frozen=True, slots=True)
class Span:
    """A plan in force from `start_s` to `end_s`, after a pause of `pause_s`."""

    start_s: float
    end_s: float
    pause_s: float
    plan: Json
    moved_bytes: int
    job: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision as the page shows it."""

    number: int
    time_s: float
    trigger: str
    details: Json
    wall: Json
    job: str
    outcome: list[float] = field(default_factory=lambda: [0.0, 0.0])  # iterations until the next, seconds


@dataclass
class Story:
    """A run, ready to be drawn. Times in simulated seconds."""

    header: Json = field(default_factory=dict)
    finished: bool = False
    end_s: float = 0.0
    events: int = 0
    observed: dict[Pair, Series] = field(default_factory=lambda: defaultdict(_of_link))  # bandwidth_bps
    filtered: dict[Pair, Series] = field(default_factory=lambda: defaultdict(_of_link))  # the same, sd_log
    spans: list[Span] = field(default_factory=list)
    unfinished: list[tuple[str, float, float]] = field(default_factory=list)  # moves: job, from, to
    iteration_s: dict[str, Series] = field(default_factory=lambda: defaultdict(Series))  # by job
    utilisation: list[Series] = field(
        default_factory=list
    )  # per domain, computing over wall time in the plan
    egress_usd: Series = field(default_factory=Series)
    gpu_usd: Series = field(default_factory=Series)
    traffic: dict[Pair, int] = field(default_factory=lambda: defaultdict(int))  # bytes, training
    moved: dict[Pair, int] = field(default_factory=lambda: defaultdict(int))  # bytes, moves
    time_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # where the time went
    computing_s: float = 0.0  # of the time in iterations, mean over the domains in the plan
    choices: list[Choice] = field(default_factory=list)
    updates: list[Json] = field(default_factory=list)  # of a policy's weights: stage, update, steps, metrics
    outages: list[tuple[Pair, float, float]] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    alarms: dict[Pair, list[float]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the domains in their order."""
        return [domain["name"] for domain in self.header["scenario"]["cluster"]["domains"]]

    @property
    def jobs(self) -> list[str]:
        """Names of the jobs that had a plan, as they began; [""] for one without a name."""
        return list(dict.fromkeys(span.job for span in self.spans))

    @property
    def played(self) -> bool:
        """Whether anything was trained or decided; logs of trainings hold neither."""
        return bool(self.spans or self.choices)

    @property
    def dataset(self) -> str:
        """The WAN data set that the links came from."""
        return str(self.header["dataset"] or self.header["scenario"]["wan"]["dataset"])

    @property
    def synthetic(self) -> bool:
        """Whether the links are made up rather than measured."""
        return made_up(self.dataset, self.header.get("note", ""))

    @property
    def used_links(self) -> list[Pair]:
        """Links that carried bytes, the busiest first."""
        total = {pair: self.traffic[pair] + self.moved[pair] for pair in {*self.traffic, *self.moved}}
        return sorted((pair for pair in total if total[pair]), key=lambda pair: (-total[pair], pair))


def tell(events: Iterable[Event]) -> tuple[Story, Kpis]:
    """The story and the key figures of a run, from its events alone."""
    teller, figures = _Teller(), Fold()
    for event in events:
        teller.add(event)
        figures.add(event)
    return teller.end(), figures.kpis()


class _Teller:
    """Takes events one by one into a story."""

    def __init__(self) -> None:
        self.story = Story()
        self._trigger = ""
        self._down: dict[Pair, float] = {}
        self._in_force: dict[str, int] = {}  # number of the span that a job is in
        self._last: dict[str, Choice] = {}  # decision of each job
        self._egress_usd = self._gpu_usd = 0.0

    def add(self, event: Event) -> None:
        """One more event; types that the page does not show only move the clock."""
        self.story.events += 1
        self.story.end_s = event.sim_ns / 1e9
        take = getattr(self, f"_{event.type}", None)
        if take is not None:
            take(event, event.payload)

    def end(self) -> Story:
        """The story, open ends closed."""
        story = self.story
        for pair, since_s in self._down.items():
            story.outages.append((pair, since_s, story.end_s))
        for job in list(self._in_force):
            self._close(job, story.end_s)
        return story

    def _close(self, job: str, end_s: float) -> None:
        """The plan of a job, if it has one, ends here."""
        number = self._in_force.pop(job, None)
        if number is not None:
            self.story.spans[number] = replace(self.story.spans[number], end_s=end_s)

    def _run_started(self, event: Event, payload: Json) -> None:
        self.story.header = payload
        self.story.utilisation = [Series() for _ in self.story.names]

    def _link_observed(self, event: Event, payload: Json) -> None:
        for i, j, bandwidth_bps, _ in payload["samples"]:
            self.story.observed[i, j].add(payload["sampled_ns"] / 1e9, bandwidth_bps)

    def _state_estimated(self, event: Event, payload: Json) -> None:
        for i, j, bandwidth_bps, sd_log, _ in payload["links"]:
            self.story.filtered[i, j].add(event.sim_ns / 1e9, bandwidth_bps, sd_log)

    def _triggered(self, event: Event, payload: Json) -> None:
        self._trigger = payload["trigger"]
        for pairs in payload["reasons"].get("alarm", ()):
            for i, j in pairs:
                self.story.alarms.setdefault((i, j), []).append(event.sim_ns / 1e9)

    def _policy_updated(self, event: Event, payload: Json) -> None:
        self.story.updates.append(payload)

    def _decided(self, event: Event, payload: Json) -> None:
        shown = {key: value for key, value in payload.items() if key != "observation"}
        choice = Choice(payload["number"], event.sim_ns / 1e9, self._trigger, shown, event.wall, event.job)
        self.story.choices.append(choice)
        self._last[event.job] = choice

    def _plan_applied(self, event: Event, payload: Json) -> None:
        story, pause_s = self.story, payload["pause_ns"] / 1e9
        self._close(event.job, event.sim_ns / 1e9 - pause_s)
        self._in_force[event.job] = len(story.spans)
        moved = sum(size for _, _, size in payload["moved_bytes"])
        now_s = event.sim_ns / 1e9
        story.spans.append(Span(now_s, now_s, pause_s, payload["plan"], moved, event.job))
        story.time_s["moving"] += pause_s
        self._charge(event, payload)

    def _iteration_done(self, event: Event, payload: Json) -> None:
        story, start_s = self.story, payload["start_ns"] / 1e9
        for count, duration_ns in payload["durations"]:
            story.iteration_s[event.job].add(start_s, duration_ns / 1e9)
            start_s += count * duration_ns / 1e9
        stalled_s = payload["stalled_ns"] / 1e9
        story.time_s["stalled"] += stalled_s
        story.time_s["training"] += start_s - payload["start_ns"] / 1e9 - stalled_s
        active_ns = sum(payload["active_ns"])
        length_s = start_s - payload["start_ns"] / 1e9
        story.computing_s += length_s * sum(payload["compute_ns"]) / active_ns if active_ns else 0.0
        if event.job in self._last:
            self._last[event.job].outcome[0] += payload["count"]
            self._last[event.job].outcome[1] += length_s
        for k, (compute_ns, active_ns) in enumerate(
            zip(payload["compute_ns"], payload["active_ns"], strict=True)
        ):
            if active_ns:
                story.utilisation[k].add(payload["start_ns"] / 1e9, compute_ns / active_ns)
        self._charge(event, payload)

    def _job_preempted(self, event: Event, payload: Json) -> None:
        self._close(event.job, event.sim_ns / 1e9)

    _job_finished = _job_failed = _job_preempted

    def _time_lost(self, event: Event, payload: Json) -> None:
        start_s, lost_s, reason = payload["start_ns"] / 1e9, payload["lost_ns"] / 1e9, payload["reason"]
        if reason == "moving":  # no plan came of it
            self._close(event.job, start_s)
            self.story.unfinished.append((event.job, start_s, start_s + lost_s))
            reason = "unfinished move"
        self.story.time_s[reason] += lost_s
        self._charge(event, payload)

    def _link_failed(self, event: Event, payload: Json) -> None:
        self._down[payload["src"], payload["dst"]] = event.sim_ns / 1e9

    def _link_restored(self, event: Event, payload: Json) -> None:
        pair = (payload["src"], payload["dst"])
        self.story.outages.append((pair, self._down.pop(pair, 0.0), event.sim_ns / 1e9))

    def _gpu_failed(self, event: Event, payload: Json) -> None:
        where = self.story.names[payload["domain"]]
        self.story.faults.append((event.sim_ns / 1e9, f"{where} lost {payload['gpus']} GPUs"))

    def _gpu_repaired(self, event: Event, payload: Json) -> None:
        where = self.story.names[payload["domain"]]
        self.story.faults.append((event.sim_ns / 1e9, f"{where} got {payload['gpus']} GPUs back"))

    def _domain_slowed(self, event: Event, payload: Json) -> None:
        where = self.story.names[payload["domain"]]
        self.story.faults.append(
            (event.sim_ns / 1e9, f"{where} computes at {payload['factor']:.2f} x the time")
        )

    def _run_finished(self, event: Event, payload: Json) -> None:
        self.story.finished = True

    def _charge(self, event: Event, payload: Json) -> None:
        story, time_s = self.story, event.sim_ns / 1e9
        self._egress_usd += payload["egress_usd"]
        self._gpu_usd += payload["gpu_usd"]
        story.egress_usd.add(time_s, self._egress_usd)
        story.gpu_usd.add(time_s, self._gpu_usd)
        for name, sums in (("wan_bytes", story.traffic), ("moved_bytes", story.moved)):
            for i, j, size in payload.get(name, ()):
                sums[i, j] += size
