"""The compiled scores of nodes: the highest is taken, of equal ones the first node.

Those of FGD's comparison (Weng et al., USENIX ATC 2023) are whole numbers from 0 to 100, as in its simulator
(hkust-adsl/kubernetes-scheduler-simulator @ 8f3d6417353c); its published figures rest on the ties that this
makes. CPU and GPUs are normalised by the largest nodes of the cluster.
"""

from math import exp

from ingest.core.compiled import njit
from twin.placement.cluster import MILLI
from twin.placement.demands import Mix, Wants
from twin.placement.fragmentation import fragments
from twin.placement.nodes import Nodes
from twin.placement.recipe import SCORES

(FIRST, LEFTOVER_LEAST, LEFTOVER_MOST, DOT_LEAST, DOT_MOST, AFFINITY, PACKING, FRAGMENTS, RANDOM) = range(
    len(SCORES)
)
BEST = 100
"""The highest score."""


@njit(borrowing=True, cache=True, nogil=True)
def score(code: int, nodes: Nodes, wants: Wants, kind: int, n: int, gpus: int, mix: Mix) -> tuple[int, int]:
    """Returns the score of a node for so many GPUs of a job, and the GPU for a share (-1: the fullest)."""
    if code == LEFTOVER_LEAST:
        return int((1.0 - _leftover(nodes, wants, kind, n, gpus)) * BEST), -1
    if code == LEFTOVER_MOST:
        return int(_leftover(nodes, wants, kind, n, gpus) * BEST), -1
    if code == DOT_LEAST:
        return int(BEST * (1.0 - _dot(nodes, wants, kind, n, gpus) / 2)), -1
    if code == DOT_MOST:
        return int(BEST * _dot(nodes, wants, kind, n, gpus) / 2), -1
    if code == AFFINITY:
        return _affinity(nodes, wants, kind, n, gpus), -1
    if code == PACKING:
        return _packing(nodes, wants, kind, n, gpus), -1
    if code == FRAGMENTS:
        points, gpu = _least_fragments(nodes, wants, kind, n, gpus, mix)
        return points, gpu
    return 0, -1


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _leftover(nodes: Nodes, wants: Wants, kind: int, n: int, gpus: int) -> float:
    """What stays free on the node, the mean of CPU and GPUs, of the largest nodes.

    Without CPU the GPUs alone.
    """
    of_gpus = (nodes.total[n] - gpus * wants.milli[kind]) / (nodes.most[1] * MILLI)
    if nodes.most[0] == 0:
        return float(of_gpus)
    return float((nodes.cpu[n] - wants.cpu[kind] * max(gpus, 1)) / nodes.most[0] * 0.5 + of_gpus * 0.5)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _dot(nodes: Nodes, wants: Wants, kind: int, n: int, gpus: int) -> float:
    """The product of what is asked for and what is free: CPU and GPUs (Grandl et al., SIGCOMM 2014)."""
    most_gpus = nodes.most[1] * MILLI
    dot = nodes.total[n] / most_gpus * (gpus * wants.milli[kind] / most_gpus)
    if nodes.most[0] == 0:
        return float(dot * 2)
    asked = wants.cpu[kind] * max(gpus, 1)
    return float(nodes.cpu[n] / nodes.most[0] * (asked / nodes.most[0]) + dot)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _affinity(nodes: Nodes, wants: Wants, kind: int, n: int, gpus: int) -> int:
    """75 points for a node with jobs of this size alone, 50 if others are there too, 25 for an idle one; and
    up to 25 for how full it is."""
    if gpus == 0:
        return 0
    width = nodes.left.shape[1]
    most = width * MILLI
    fullness = BEST // 4 * (most - nodes.total[n]) // most
    size = 0 if wants.milli[kind] < MILLI else min(wants.gpus[kind], width)
    sizes = 0
    for one in range(width + 1):
        sizes += nodes.held[n, one] > 0
    if nodes.held[n, size] > 0:
        return int(fullness + (BEST * 3 // 4 if sizes == 1 else BEST // 2))
    return int(fullness + (BEST // 4 if sizes == 0 else 0))


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _packing(nodes: Nodes, wants: Wants, kind: int, n: int, gpus: int) -> int:
    """From high to low: GPUs that are shared already, whole GPUs of a node in use, an idle node; the fewer
    free GPUs it takes the better."""
    if gpus == 0:
        return 0
    whole, milli = nodes.whole[n], wants.milli[kind]
    if whole == nodes.gpus[n]:
        return int(max(BEST // 3 - whole, whole))
    if milli == MILLI:
        return int(max(BEST // 2 - gpus, BEST // 3))
    least = MILLI
    for gpu in range(nodes.gpus[n]):
        if milli <= nodes.left[n, gpu] < least:
            least = nodes.left[n, gpu]
    if least == MILLI:
        return int(max(BEST // 2 - 1, BEST // 3))
    return int(max(BEST - least * 100 // MILLI // 10, BEST // 2))


@njit(inner=True, cache=True, nogil=True)
def _least_fragments(nodes: Nodes, wants: Wants, kind: int, n: int, gpus: int, mix: Mix) -> tuple[int, int]:
    """100 x sigmoid of the GPUs by which fragmentation falls; of a share on the GPU where it falls most."""
    row, cpu, model, milli = nodes.left[n].copy(), nodes.cpu[n], nodes.model[n], wants.milli[kind]
    count, rest = nodes.gpus[n], cpu - wants.cpu[kind] * max(gpus, 1)
    before = fragments(row, count, cpu, model, mix)
    if gpus != 1 or milli == MILLI:
        taken = 0
        for gpu in range(count):
            if taken < gpus and row[gpu] == MILLI:
                row[gpu] = 0
                taken += 1
        return _points(before - fragments(row, count, rest, model, mix), mix.total[0]), -1
    best, chosen = 0, -1
    for gpu in range(count):
        if row[gpu] >= milli:
            row[gpu] -= milli
            found = _points(before - fragments(row, count, rest, model, mix), mix.total[0])
            row[gpu] += milli
            if chosen < 0 or found > best:
                best, chosen = found, gpu
    return best, chosen


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _points(fall: int, jobs: int) -> int:
    """100 x sigmoid of the fall in GPUs; 50 without a mix."""
    return int(1.0 / (1.0 + exp(-fall / max(jobs, 1) / MILLI)) * BEST)
