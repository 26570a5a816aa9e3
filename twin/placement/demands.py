"""What jobs ask of nodes, in classes: jobs that ask for the same are one class, whose fit is tested once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.recipe import CONSOLIDATED, GANGS, Gang, Int

Bools = NDArray[np.bool_]
POPULAR = 0.95
"""Share of jobs that the tasks of a mix account for (FGD's setting: podPopularityThreshold 95)."""


class Wants(NamedTuple):
    """One element a class: GPUs, thousandths of each, CPU and memory for each GPU (for the job, if it has
    none), which models it accepts (classes, models), and its task.

    A task is what counts for fragmentation: GPUs, share, CPU and models, without memory.
    """

    gpus: Int
    milli: Int
    cpu: Int
    memory: Int
    allowed: Bools
    task: Int


class Mix(NamedTuple):
    """Tasks in the order that breaks ties of their counts, how many jobs have each, and the sum (1,).

    `weight` is 0 for tasks that are left out as rare.
    """

    gpus: Int
    milli: Int
    cpu: Int
    allowed: Bools
    weight: Int
    total: Int


@dataclass(frozen=True, eq=False)
class Demands:
    """The class of every job (n,), what each class asks for, and the tasks, of which none is counted yet."""

    class_of: Int
    wants: Wants
    tasks: Mix

    @classmethod
    def of_jobs(
        cls, cluster: NodeCluster, gpus: Sequence[int] | Int, milli: Sequence[int] | Int | None = None,
        cpu_milli: Sequence[int] | Int | None = None, memory_mib: Sequence[int] | Int | None = None,
        models: Sequence[str] | None = None,
    ) -> Self:  # fmt: skip
        """Returns the demands of columns, one element a job; `models` are names with bars between, "" is any.

        CPU and memory are those of the job. Where the cluster does not know its own, nobody is asked.

        Raises:
            UsageError: a share of several GPUs, or a model that the cluster has not.
        """
        count = len(gpus)
        held = np.asarray(gpus, np.int64)
        share = np.where(held > 0, np.full(count, MILLI) if milli is None else np.asarray(milli), 0)
        if ((share < MILLI) & (held > 1)).any() or ((held > 0) & ((share < 1) | (share > MILLI))).any():
            raise UsageError("a job asks for a share of several GPUs, or for none or more than all of one")
        said = [""] * count if models is None else list(models)
        masks = {one: mask_of(cluster, one) for one in dict.fromkeys(said)}
        coded = {one: at for at, one in enumerate(sorted(masks))}
        unit = np.maximum(held, 1)
        rows = np.column_stack(
            [held, share, _each(cpu_milli, unit, cluster.cpu_milli),
             _each(memory_mib, unit, cluster.memory_mib), np.array([coded[one] for one in said], np.int64)]
        )  # fmt: skip
        kinds, class_of = np.unique(rows, axis=0, return_inverse=True)
        names = sorted(masks)
        allowed = np.array([masks[names[one]] for one in kinds[:, 4]], np.bool_).reshape(
            -1, len(cluster.models)
        )
        tasks, task = _tasks(kinds, allowed)
        size, part, cpu, memory = (np.ascontiguousarray(kinds[:, at]) for at in range(4))
        wants = Wants(size, part, cpu, memory, allowed, task)
        return cls(np.ascontiguousarray(class_of.reshape(-1), np.int64), wants, tasks)

    def counted(self) -> Mix:
        """Returns the tasks with the counts of all jobs: the mix of a workload known in advance."""
        return popular(
            self.tasks, np.bincount(self.wants.task[self.class_of], minlength=len(self.tasks.gpus))
        )


def popular(tasks: Mix, counts: Int) -> Mix:
    """Returns the mix of the most frequent tasks that `POPULAR` of the jobs have; of equal counts the later
    task goes first."""
    weight, cut, reached = np.zeros(len(counts), np.int64), POPULAR * counts.sum(), 0
    for task in sorted(range(len(counts)), key=lambda one: (counts[one], one), reverse=True):
        if reached >= cut:
            break
        weight[task] = counts[task]
        reached += int(counts[task])
    return tasks._replace(weight=weight, total=np.array([reached], np.int64))


def mask_of(cluster: NodeCluster, models: str) -> tuple[bool, ...]:
    """Returns which models of the cluster a job accepts that names some, with bars between.

    Raises:
        UsageError: the cluster has none of them.
    """
    named = [one for one in models.split("|") if one]
    if named and not set(named) & set(cluster.models):
        raise UsageError(f"GPU model {named[0]!r} is not in the cluster; {cluster.nearest(named[0])}")
    return tuple(not named or one in named for one in cluster.models)


def possible(cluster: NodeCluster, wants: Wants, gang: Gang) -> Bools:
    """Returns which classes an empty cluster can run (classes,).

    Uses the plain count of pieces; CPU and memory count for nodes of their own.
    """
    from twin.placement.nodes import could, idle  # compiled: loaded where it is needed

    nodes, gang_of = idle(cluster), gangs_of(cluster, wants, gang)
    found = [could(nodes, wants, one, gang_of[one]) for one in range(len(wants.gpus))]
    return np.array(found, np.bool_)


def gangs_of(cluster: NodeCluster, wants: Wants, gang: Gang) -> Int:
    """Returns how each class is cut, its place in `GANGS` (classes,): a class that no rack of the empty
    cluster can hold does not wait for one.
    """
    from twin.placement.nodes import could, idle  # compiled: loaded where it is needed

    codes = np.full(len(wants.gpus), GANGS.index(gang), np.int64)
    if gang == "rack":
        nodes = idle(cluster)
        for one in range(len(codes)):
            if not could(nodes, wants, one, codes[one]):
                codes[one] = CONSOLIDATED
    return codes


def _each(column: Sequence[int] | Int | None, unit: Int, known: Int) -> Int:
    """What each GPU needs of a column, rounded up; 0 where nodes do not say what they have."""
    if column is None or not known.any():
        return np.zeros(len(unit), np.int64)
    each: Int = -(-np.asarray(column, np.int64) // unit)
    return each


def _tasks(kinds: Int, allowed: Bools) -> tuple[Mix, Int]:
    """The tasks of classes in the order CPU, share, GPUs, models, and the task of each class."""
    whole = kinds[:, 2] * np.maximum(kinds[:, 0], 1)
    keys = np.column_stack([whole, kinds[:, 1], kinds[:, 0], kinds[:, 4]])
    rows, first, task = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    zero = np.zeros(len(rows), np.int64)
    mix = Mix(
        np.ascontiguousarray(rows[:, 2]), np.ascontiguousarray(rows[:, 1]), np.ascontiguousarray(rows[:, 0]),
        np.ascontiguousarray(allowed[first]), zero, np.zeros(1, np.int64),
    )  # fmt: skip
    return mix, np.ascontiguousarray(task.reshape(-1), np.int64)
