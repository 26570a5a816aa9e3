"""MLCommons Chakra: one iteration of a plan as execution traces, a file a stage.

A stage stands for its tensor and data ranks, which do the same at the same time; their collectives are in the
durations of its operations. Compute follows the order of the schedule; messages join stages by source, target
and tag. Where sends block, the next operation of the stage waits for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.core.units import NS_PER_S
from replay.export import differences, stage_order
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from replay.export.targets import chakra_nodes
from replay.export.targets.chakra_nodes import COMPUTE, RECEIVE, SEND, TraceNode, Transfer
from twin.pipeline import reference_simulator

NS_PER_US = NS_PER_S // 1_000_000
NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
Timed = tuple[int, int]
"""Start and duration, microseconds."""


class ChakraTarget:
    """Execution traces of one iteration."""

    name = "chakra"
    about = "MLCommons Chakra: execution traces of one iteration, a file a stage"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that traces of stages cannot hold."""
        return differences.first(job, (differences.no_replicas, known_links))

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns the traces."""
        return {f"iteration.{n}.et": chakra_nodes.trace(nodes) for n, nodes in enumerate(traces(job))}

    def start(self, job: PlannedJob) -> str:
        """Returns what reads the traces."""
        return (
            "Chakra's tools take the files as they are: `chakra_jsonizer --input_filename iteration.0.et "
            "--output_filename stage0.json` shows one as text, `chakra_visualizer` draws it; `twin ingest` "
            "reads the durations of compute. A file is a stage and stands for its tensor and data ranks. "
            "`twin export --to astra-sim` adds the inputs of a simulator."
        )


@dataclass
class StageTrace:
    """Nodes of one stage, in order; sends block it or not."""

    stage: int
    blocking: bool
    nodes: list[TraceNode] = field(default_factory=list)
    last: int | None = None  # the compute before
    sent: list[int] = field(default_factory=list)  # sends that the next operation waits for

    def compute(self, name: str, timed: Timed, needs: tuple[int, ...]) -> int:
        """Adds an operation behind the one before."""
        before = () if self.last is None else (self.last,)
        control = (*before, *(self.sent if self.blocking else ()))
        self.sent = []
        self.last = self._add(name, COMPUTE, needs, control, timed, None)
        return self.last

    def receive(self, name: str, transfer: Transfer) -> int:
        """Adds the arrival of a message; the network decides when."""
        return self._add(name, RECEIVE, (), (), (0, 0), transfer)

    def send(self, name: str, transfer: Transfer, after: int) -> None:
        """Adds a message that leaves when operation `after` is done."""
        self.sent.append(self._add(name, SEND, (after,), (), (0, 0), transfer))

    def _add(
        self, name: str, kind: int, data: tuple[int, ...], control: tuple[int, ...], timed: Timed,
        transfer: Transfer | None,
    ) -> int:  # fmt: skip
        number = len(self.nodes)
        self.nodes.append(TraceNode(number, name, kind, data, control, *timed, transfer))
        return number


def traces(job: PlannedJob) -> list[list[TraceNode]]:
    """Returns the nodes of every stage."""
    times, tails = durations(job)
    found = []
    for stage, line in enumerate(stage_order.lines(job)):
        made = StageTrace(stage, job.plan.p2p == "blocking")
        for operation, timed in zip(line, times[stage], strict=True):
            _operation(job, made, operation, timed)
        made.compute("update", tails[stage], ())
        found.append(made.nodes)
    return found


def _operation(job: PlannedJob, made: StageTrace, operation: str, timed: Timed) -> None:
    """Adds an operation with the messages before and after it."""
    kind = next(letter for letter in NAMES if letter in operation)
    part, k = map(int, operation.split(kind))
    stages = [one.stage for one in stage_order.along(job)]
    forward, step = kind == "F", 1 if kind == "F" else -1
    needs: tuple[int, ...] = ()
    name = f"{NAMES[kind]} {k} of part {part}"
    before, after = part - step, part + step
    if kind != "W" and 0 <= before < len(stages) and stages[before] != made.stage:
        needs = (made.receive(f"receive for {name}", _message(job, stages, before, part, k, forward)),)
    done = made.compute(name, timed, needs)
    if kind != "W" and 0 <= after < len(stages) and stages[after] != made.stage:
        made.send(f"send of {name}", _message(job, stages, part, after, k, forward), done)


def _message(
    job: PlannedJob, stages: list[int], source: int, target: int, k: int, forward: bool
) -> Transfer:  # fmt: skip
    """Message between two parts; the tag tells direction, boundary and micro-batch apart."""
    boundary = min(source, target)
    tag = (2 * boundary + (not forward)) * job.plan.micro_batches + k
    plan, size = job.plan, job.job.message_bytes(job.plan.micro_batch)
    a, b = (stage_order.along(job)[part] for part in (source, target))
    # Data ranks share a wide-area link; inside a domain every GPU sends its own slice over its own port.
    size = plan.dp * size if a.domain != b.domain else size // a.tp
    return Transfer(stages[source], stages[target], size, tag)


def durations(job: PlannedJob) -> tuple[list[list[Timed]], list[Timed]]:
    """Returns start and duration of every compute operation of each stage, in order, and of what follows its
    last one: gradients reduced, weights updated. From the reference simulator under the links of the plan."""
    assert job.links is not None, "the target has asked for links"
    timing = job.estimator.pipeline(job.plan, job.links)
    assert timing is not None, "the target has asked for links that live"
    slices: list[list[tuple[int, int]]] = [[] for _ in range(job.plan.stages)]

    def note(what: str, where: int, _micro_batch: int, start_ns: int, end_ns: int) -> None:
        if what in ("forward", "backward", "weight"):
            slices[where].append((start_ns, end_ns))

    timeline = reference_simulator.simulate(timing, 0, note)
    times = [[_timed(*one) for one in sorted(row)] for row in slices]
    tails = [_timed(end, end + int(timing.tail[stage, 0])) for stage, end in enumerate(timeline.end_ns)]
    return times, tails


def _timed(start_ns: int, end_ns: int) -> Timed:
    return round(start_ns / NS_PER_US), max(1, round((end_ns - start_ns) / NS_PER_US))


def known_links(job: PlannedJob) -> Difference | None:
    """Traces and networks have times, which follow from links."""
    if job.iteration_s is not None:
        return None
    nominal = stage_order.nominal(len(job.domains))
    words = f"{stage_order.NOMINAL_BPS / 1e9:.0f} Gb/s and {stage_order.NOMINAL_S * 1e3:.0f} ms on each"
    return Difference(
        "links that are not known, or dead", "its times follow from them", words, job.plan, nominal
    )
