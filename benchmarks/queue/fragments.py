"""Jobs of GPU traces on nodes, for the fragmentation of the page about all traces (`traces.py`).

The jobs were measured. The layout is **synthetic**: nodes of 8 GPUs in racks of 4 nodes, as many as hold the
pool of the trace. A processor of a job is a whole GPU of any model.
"""

from collections.abc import Iterator
from typing import Any

from benchmarks.queue.inputs import Trace
from benchmarks.queue.published import table
from policy.placement.registry import placement
from policy.queue.registry import recipe
from replay.logqueue.windowed import Ranged, Windowed, fragmentation, ratio
from twin.nodes.metrics import nodes_per_gang, racks_per_gang
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.placement.cluster import NodeCluster
from twin.placement.demands import POPULAR, Demands
from twin.queue.rules import PREDICTSIM

GPUS, RACK = 8, 4
"""GPUs of a node, and nodes of a rack."""
ON_NODES = ("Muri", "ITP", "Philly", "openb")
"""First words of the traces whose jobs run on GPUs of many nodes."""
BASE, PLACEMENTS = "best-fit", ("best-fit", "packing", "fgd", "spread", "rack")
POLICY = "easy"
"""The scheduler under which placements are compared."""
Json = dict[str, Any]


def laid_out(trace: Trace) -> bool:
    """Returns True if the jobs of a trace are laid on nodes."""
    return trace.name.partition(" ")[0] in ON_NODES


def layout(processors: int) -> NodeCluster:
    """Returns the nodes that hold so many GPUs; the last rack may be smaller."""
    nodes = -(-processors // GPUS)
    return NodeCluster.of_nodes([GPUS] * nodes, ["GPU"] * nodes, racks=[one // RACK for one in range(nodes)])


def on_nodes(trace: Trace, policy: str, place: str = BASE) -> NodeSchedule:
    """Returns what a scheduler and a placement make of a trace."""
    cluster = layout(trace.processors)
    demands = Demands.of_jobs(cluster, trace.jobs.processors)
    return simulate_on_nodes(trace.jobs, demands, cluster, recipe(policy), placement(place), rules=PREDICTSIM)


def placements(trace: Trace) -> dict[str, Json]:
    """Returns for each placement under `POLICY`: wait, bounded slowdown over that of `BASE` and
    fragmentation with their intervals, and nodes and racks of a gang."""
    done = {place: on_nodes(trace, POLICY, place) for place in PLACEMENTS}
    pools = {place: Windowed(one.as_pool) for place, one in done.items()}
    return {
        place: {
            "wait": pools[place].wait().to_json(), "ratio": ratio(pools[place], pools[BASE]).to_json(),
            "fragmentation": fragmentation(one).to_json(), "nodes": nodes_per_gang(one),
            "racks": racks_per_gang(one),
        }
        for place, one in done.items()
    }  # fmt: skip


def section(found: dict[str, Json]) -> str:
    """Returns the part of the page about placements: `found` has the cell of each trace on nodes."""
    sizes = (
        (name, f"{cell['gpus']:,}", f"{-(-cell['gpus'] // GPUS):,}", f"{-(-cell['gpus'] // (GPUS * RACK)):,}")
        for name, cell in found.items()
    )

    def rows() -> Iterator[tuple[object, ...]]:
        for name, cell in found.items():
            for place, one in cell["placements"].items():
                said = (Ranged(*one[figure]).said() for figure in ("fragmentation", "wait", "ratio"))
                gangs = ("-" if one[per] is None else f"{one[per]:.2f}" for per in ("nodes", "racks"))
                yield name, place, *said, *gangs

    heads = (
        "trace", "placement", "fragmentation, %", "mean wait, s", f"x {BASE}", "nodes a gang", "racks a gang",
    )  # fmt: skip
    return f"""The jobs were measured; the cluster is a **synthetic** layout under them: nodes of {GPUS} GPUs,
racks of {RACK} nodes, as many as hold the pool of the trace, so that waits differ from those of the pool
where it is no multiple of {GPUS}. A processor of a job is a whole GPU of any model; shares of openb are, too.

The measure is FGD's (Weng et al., ATC 2023), in hindsight: the share of all GPUs that is free and that the
mix of jobs of the trace cannot use, the mean over the makespan. The mix has the most frequent sizes that
{100 * POPULAR:.0f} % of the jobs ask for, as there: where they are one GPU each, nothing is a fragment. A
size of more than {GPUS} GPUs fits on no single node, so that for its share of the mix an idle node is one.
Windows are of equal length.

The tables of traces have the figure under `{BASE}` for every scheduler; here are placements under
`{POLICY}`. `rack` keeps a job in one rack and waits for it; `x {BASE}` is mean bounded slowdown, paired by
window.

{table(("trace", "GPUs", "nodes", "racks"), sizes)}

{table(heads, rows())}"""
