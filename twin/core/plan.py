"""A plan: the layers of each domain and how they run; an immutable value, checked when made."""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from twin.core import schedules

Schedule = Literal["gpipe", "1f1b", "interleaved", "crosspipe", "zb-h1", "zb-v"]
PointToPoint = Literal["blocking", "overlapped", "rendezvous"]
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one domain: `layers` consecutive layers in `pp` stages of tensor width `tp`.

    `gpus`: GPUs of the domain in rank order, tensor rank fastest, then data rank, then stage:
    rank (stage, d, t) is `gpus[(stage * dp + d) * tp + t]`; its length is dp * tp * pp.
    """

    domain: int
    layers: int
    tp: int
    pp: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """Synchronisation of replicas of the whole model in different domains.

    `inner_steps` H: 1 averages gradients in every iteration, synchronous data parallelism; more is local SGD
    with an outer step after every H iterations (DiLoCo). An exchange sends `bytes_per_parameter` around a
    ring of the domains in the order of the shares.
    """

    inner_steps: int = 1
    bytes_per_parameter: float = 4.0

    def __post_init__(self) -> None:
        if self.inner_steps < 1 or self.bytes_per_parameter <= 0:
            raise ValueError(f"{self}: at least one inner step and more than no bytes")


@dataclass(frozen=True, slots=True)
class Plan:
    """Shares in pipeline order; every domain appears at most once.

    With `sync` the shares are no pipeline: each holds a replica of the whole model, and the replicas divide
    the batch evenly.

    A layer is one entry of `Transformer.layers()`: embedding, blocks, output head. `micro_batches` is m, the
    number of micro-batches each of the `dp` pipelines runs in one iteration. `routes` lists the directed
    relays: (i, k, j) sends messages from domain i to j through k; pairs not listed use their own link.

    `chunks` v belongs to the interleaved schedule: every stage holds v parts of the model instead of one, and
    the pipeline passes all stages v times, back from the last to the first in between. ZB-V has two, in the
    shape of a V (`twin.core.schedules`).

    `sequence_parallel`: tensor groups split what lies between their products over the tokens
    (`twin.core.switches.TensorMode`).

    `dp` counts the ranks that reduce their gradients together. With `context_parallel` c each c neighbours of
    them split the sequences of one pipeline, so that there are dp / c pipelines. With `ep` each ep neighbours
    of them share the experts of every block, and dp / ep ranks reduce the gradients of an expert.
    """

    shares: tuple[Share, ...]
    dp: int
    micro_batch: int
    micro_batches: int
    schedule: Schedule = "1f1b"
    extra_warmup: int = 0
    p2p: PointToPoint = "blocking"
    recompute: Recompute = "full"
    zero: int = 0
    routes: tuple[tuple[int, ...], ...] = ()
    sync: Sync | None = None
    chunks: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        if not self.shares:
            raise ValueError("a plan needs at least one share")
        domains = [share.domain for share in self.shares]
        if len(set(domains)) != len(domains):
            raise ValueError(f"a domain appears twice: {domains}")
        for share in self.shares:
            if share.layers < share.pp:
                raise ValueError(
                    f"domain {share.domain}: {share.layers} layers cannot fill {share.pp} stages"
                )
            if len(share.gpus) != self.dp * share.tp * share.pp:
                raise ValueError(f"domain {share.domain}: {len(share.gpus)} GPUs placed, dp*tp*pp differs")
            if len(set(share.gpus)) != len(share.gpus):
                raise ValueError(f"domain {share.domain}: a GPU is placed twice")
        self._check_routes()
        if self.sync is not None and len({share.layers for share in self.shares}) != 1:
            raise ValueError("replicas hold the same layers")
        if min(self.dp, self.micro_batch, self.micro_batches) < 1:
            raise ValueError("dp, micro_batch and micro_batches are at least 1")
        if self.context_parallel < 1 or self.dp % self.context_parallel:
            raise ValueError(f"context_parallel {self.context_parallel} does not divide dp {self.dp}")
        if self.ep < 1 or self.dp % self.ep:
            raise ValueError(f"ep {self.ep} does not divide dp {self.dp}")
        self._check_chunks()

    def _check_chunks(self) -> None:
        if fault := schedules.chunk_fault(self.schedule, self.chunks):
            raise ValueError(f"chunks: {fault}")
        pipeline = self.replicas == 1
        stages = self.stages if pipeline else max(share.pp for share in self.shares)
        if self.schedule == "interleaved" and (stages < 2 or self.micro_batches % stages):
            raise ValueError(
                f"interleaved: {self.micro_batches} micro-batches are no multiple of two or more stages, "
                f"here {stages}"
            )
        for share in self.shares:
            if share.layers < share.pp * self.chunks:
                raise ValueError(
                    f"domain {share.domain}: {share.layers} layers cannot fill {share.pp} stages "
                    f"of {self.chunks} chunks"
                )

    def _check_routes(self) -> None:
        for route in self.routes:
            if len(route) < 3 or len(set(route)) != len(route):
                raise ValueError(
                    f"route {route}: a relay names a source, what it passes and a target, once each"
                )
        ends = [(route[0], route[-1]) for route in self.routes]
        if len(set(ends)) != len(ends):
            raise ValueError(f"two routes join the same domains: {self.routes}")

    def route(self, src: int, dst: int) -> tuple[tuple[int, int], ...]:
        """The directed links from domain `src` to `dst`, in order."""
        for route in self.routes:
            if (route[0], route[-1]) == (src, dst):
                return tuple(pairwise(route))
        return ((src, dst),)

    @property
    def order(self) -> tuple[int, ...]:
        """Domains in pipeline order."""
        return tuple(share.domain for share in self.shares)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Cut points 0 = c_0 < ... < c_n = N over the used domains; only 0 and N for replicas."""
        if self.sync is not None:
            return (0, self.shares[0].layers)
        points = [0]
        for share in self.shares:
            points.append(points[-1] + share.layers)
        return tuple(points)

    @property
    def replicas(self) -> int:
        """Copies of the model in different domains; 1 for a pipeline."""
        return 1 if self.sync is None else len(self.shares)

    def replica(self, number: int) -> "Plan":
        """Pipeline of one replica, inside its domain."""
        return replace(self, shares=(self.shares[number],), routes=(), sync=None)

    @property
    def pipelines(self) -> int:
        """Pipelines of each replica that have sequences of their own."""
        return self.dp // self.context_parallel

    @property
    def stages(self) -> int:
        """Pipeline stages of all shares."""
        return sum(share.pp for share in self.shares)

    def __str__(self) -> str:
        between = " > " if self.sync is None else " | "
        shares = between.join(f"d{s.domain}:{s.layers}L(tp{s.tp},pp{s.pp})" for s in self.shares)
        via = "".join(f" via {'-'.join(map(str, route))}" for route in self.routes)
        context = f" cp{self.context_parallel}" if self.context_parallel > 1 else ""
        experts = f" ep{self.ep}" if self.ep > 1 else ""
        size = f"dp{self.pipelines}{context}{experts} mbs{self.micro_batch} m{self.micro_batches}"
        every = "" if self.sync is None else f" H{self.sync.inner_steps}"
        chunks = f" v{self.chunks}" if self.chunks > 1 else ""
        split = " sp" if self.sequence_parallel else ""
        ahead = f"+{self.extra_warmup}" if self.extra_warmup else ""
        return f"{shares} {size} {self.schedule}{ahead}{chunks}/{self.p2p}{split}{every}{via}"


def to_json(plan: Plan) -> dict[str, Any]:
    """Plan as JSON values, field by field; those added since the first logs only where set."""
    fields = asdict(plan)
    routes = fields.pop("routes")
    if routes:
        fields["routes"] = [list(route) for route in routes]
    if fields["sync"] is None:
        del fields["sync"]
    if plan.chunks == 1:
        del fields["chunks"]
    if not plan.sequence_parallel:
        del fields["sequence_parallel"]
    if plan.context_parallel == 1:
        del fields["context_parallel"]
    if plan.ep == 1:
        del fields["ep"]
    fields["shares"] = [{**share, "gpus": list(share["gpus"])} for share in fields["shares"]]
    return fields
