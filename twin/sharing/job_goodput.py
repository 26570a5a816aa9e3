"""Speeds of jobs by goodput: where they run, on how many GPUs, with which batch, and how far they have come.

The work of a job is its training, from the first sample to the last epoch of its profile. Its rate is goodput
over all the useful samples of the training: samples a second times the statistical efficiency of the batch by
the noise scale of the epoch (Qiao et al., Pollux, OSDI 2021, equations 5 to 8; Jayaram Subramanya et al.,
Sia, SOSP 2023, 3.3). One second of work is a second of the mean speed that the job has alone on the GPUs that
it asks for, with the batch of its list. A tuned job takes the batch of the most goodput wherever it runs, any
other the batch of its list.

Times of steps are those of the fitted model of Pollux. A job that a scheduler puts where nothing was measured
(more nodes, GPUs of several models: it runs as on the slowest) runs by the same model, extrapolated; the
tables from which a scheduler chooses (`speeds`) hold measured sizes alone.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ingest.core.units import NS_PER_S
from twin.goodput import many_jobs
from twin.goodput.many_jobs import ApplicationThroughput, GpuThroughput
from twin.goodput.profiled_steps import noise_scales, useful_samples
from twin.goodput.throughput_model import Values, Whole
from twin.queue.jobs import Float, Int
from twin.sharing.changes import PPM

REFRESH_NS = 60 * NS_PER_S
"""Jobs tune their batch, and take the noise scale of the epoch, at every event, this long after the last one
at the latest: the interval of both papers."""


@dataclass(frozen=True, eq=False)
class TrainedApplication:
    """An application with the noise of its gradients: `ends`, the share of the training that is done at the
    end of each epoch (e,), 1 the last; noise scales, samples, of `batches` (b,) ascending in each (b, e); and
    the useful samples of the whole training."""

    throughput: ApplicationThroughput
    ends: Values
    batches: Values
    noise: Values
    samples: float

    def epoch(self, done: float) -> int:
        """Returns the epoch in which a job is that has done this share of its training."""
        return min(int(np.searchsorted(self.ends, done, side="right")), len(self.ends) - 1)

    def noise_at(self, batch: Values, epoch: int) -> Values:
        """Returns the noise scale at global batches of any shape, linear in the logarithm of the batch."""
        found: Values = np.interp(np.log(batch), np.log(self.batches), self.noise[:, epoch])
        return found

    def goodput(
        self, gpu: str, nodes: Whole, replicas: Whole, epoch: int, batch: int = 0, *, measured: bool = True
    ) -> Values:
        """Returns useful samples a second on placements (c,) of a GPU, at the batch with the most of them, or
        at `batch`; 0 where the application does not run.

        measured: 0 as well where the placement, or the samples a GPU, lie outside of what was measured.
        """
        known = self.throughput.by_gpu.get(gpu)
        if known is None:
            return np.zeros(len(replicas))
        local, passes = self._fixed(known, replicas, batch) if batch else self._tried(known, replicas)
        total = (local * passes * replicas[:, None]).astype(np.float64)
        rate = total / known.model.step_s(nodes[:, None], replicas[:, None], local, passes)
        noise, first = self.noise_at(total, epoch), self.throughput.initial
        found = rate * (noise + first) / (noise + total)
        if measured:
            inside = (local >= known.least_local) & (local <= known.most_local)
            fits = (nodes <= known.most_nodes) & (replicas <= known.most_replicas)
            found = np.where(inside & fits[:, None], found, 0.0)
        best: Values = found.max(axis=1)
        return best

    def _tried(self, known: GpuThroughput, replicas: Whole) -> tuple[Whole, Whole]:
        return many_jobs.shares(self.throughput, known, replicas)

    def _fixed(self, known: GpuThroughput, replicas: Whole, batch: int) -> tuple[Whole, Whole]:
        """Returns samples a GPU and passes of one batch (c, 1), as even as whole samples allow."""
        each = np.maximum(-(-batch // replicas), 1)[:, None]
        passes = -(-each // known.most_local)
        return -(-each // passes), passes

    def alone_s(self, gpu: str, nodes: int, replicas: int, batch: int = 0) -> float:
        """Returns the seconds of the whole training on a placement; 0 where it was not measured."""
        shares = np.diff(self.ends, prepend=0.0)
        where = np.array([nodes]), np.array([replicas])
        rates = [float(self.goodput(gpu, *where, at, batch)[0]) for at in range(len(shares))]
        if not all(rates):
            return 0.0
        return float(sum(share * self.samples / rate for share, rate in zip(shares, rates, strict=True)))


def trained(folder: Path, name: str, gpus: tuple[str, ...]) -> TrainedApplication:
    """Returns a profiled application with its noise scales.

    Raises:
        NotFoundError: no such application or GPU. InputError: a cell is no number.
    """
    throughput = many_jobs.application(folder, name, gpus)
    noise = noise_scales(folder, name)
    batches = sorted(noise)
    ends = noise[batches[0]][0]
    rows = [np.interp(ends, *noise[batch]) for batch in batches]
    samples = useful_samples(folder, name)
    return TrainedApplication(throughput, ends, np.array(batches, np.float64), np.array(rows), samples)


@dataclass(frozen=True, eq=False)
class JobGoodput:
    """Applications; of each job (n,) its application, the batch of its list and its work; the GPU model of
    each node, by its index in `models`, which are names of profiles.

    tuned: jobs take the best batch, else that of their list.
    """

    applications: tuple[TrainedApplication, ...]
    of_job: Int
    batch: Int
    run_ns: Int
    models: tuple[str, ...]
    of_node: Int
    tuned: bool = False
    refresh_ns: int = REFRESH_NS
    rates_known: dict[tuple[int, ...], float] = field(default_factory=dict)
    tables_known: dict[tuple[int, ...], Float] = field(default_factory=dict)

    def epochs(self, job: Int, left: Int) -> list[int]:
        """Returns the epoch of each of these jobs (rows,) by the work that is left of it."""
        done = 1.0 - left / self.run_ns[job]
        return [
            self.applications[of].epoch(share)
            for of, share in zip(self.of_job[job].tolist(), done.tolist(), strict=True)
        ]

    def rates(self, job: Int, gpus: Int, node: Int, leader: Int, whole: Int, left: Int) -> Int:
        """Returns the speed of each of these jobs (rows,) alone where it lies, millionths; 0 without GPUs.

        `whole` (nodes,): the job that lies on several nodes or holds one alone; `left`: work of each row.
        """
        found = np.zeros(len(job), np.int64)
        epochs, holder = self.epochs(job, left), np.where(leader < 0, job, leader)
        for row in np.flatnonzero(gpus > 0).tolist():
            own = self.of_node[[node[row]]] if node[row] >= 0 else self.of_node[whole == holder[row]]
            many = min(max(1, len(own)), int(gpus[row]))
            on = set(own.tolist()) or range(len(self.models))
            each = [self._rate(int(job[row]), one, many, int(gpus[row]), epochs[row]) for one in on]
            found[row] = max(1, int(PPM * min(each)))
        return found

    def _rate(self, job: int, model: int, nodes: int, gpus: int, epoch: int) -> float:
        """Returns the speed of a job on a placement over that of its run time."""
        of, batch = int(self.of_job[job]), 0 if self.tuned else int(self.batch[job])
        key = (of, batch, model, nodes, gpus, epoch)
        if key not in self.rates_known:
            where = np.array([nodes]), np.array([gpus])
            self.rates_known[key] = float(
                self.applications[of].goodput(self.models[model], *where, epoch, batch, measured=False)[0]
            )
        return self.rates_known[key] * self._scale(job)

    def _scale(self, job: int) -> float:
        """Returns the seconds of the run time over the useful samples of the training."""
        return float(self.run_ns[job]) / NS_PER_S / self.applications[int(self.of_job[job])].samples

    def speeds(self, job: Int, left: Int, most_nodes: int, most_gpus: int) -> Float:
        """Returns the speeds of jobs (rows,) on measured placements, (rows, models, nodes + 1, GPUs + 1)."""
        found = np.zeros((len(job), len(self.models), most_nodes + 1, most_gpus + 1))
        for row, (one, epoch) in enumerate(zip(job.tolist(), self.epochs(job, left), strict=True)):
            of, batch = int(self.of_job[one]), 0 if self.tuned else int(self.batch[one])
            key = (of, batch, epoch, most_nodes, most_gpus)
            if key not in self.tables_known:
                self.tables_known[key] = self._table(*key)
            found[row] = self.tables_known[key] * self._scale(one)
        return found

    def _table(self, of: int, batch: int, epoch: int, most_nodes: int, most_gpus: int) -> Float:
        """Returns goodput on (models, nodes + 1, GPUs + 1)."""
        found = np.zeros((len(self.models), most_nodes + 1, most_gpus + 1))
        one = self.applications[of]
        for model, name in enumerate(self.models):
            known = one.throughput.by_gpu.get(name)
            if known is None:
                continue
            top = min(most_nodes, known.most_nodes), min(most_gpus, known.most_replicas)
            nodes, gpus = (grid.ravel() for grid in np.mgrid[1 : top[0] + 1, 1 : top[1] + 1])
            real = nodes <= gpus
            nodes, gpus = nodes[real], gpus[real]
            found[model, nodes, gpus] = one.goodput(name, nodes, gpus, epoch, batch)
        return found
