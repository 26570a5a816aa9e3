"""A training job: the model, the batch, and how the pipeline runs."""

from dataclasses import dataclass

from ingest.core.errors import UsageError
from twin.core import schedules
from twin.core.experts import degree_fault
from twin.core.plan import PointToPoint, Recompute, Schedule
from twin.core.switches import DEFAULT, Switches, TensorMode
from twin.core.transformer import Layer, Transformer


@dataclass(frozen=True)
class JobSpec:
    """One training job. `micro_batches_allowed` lists the micro-batch sizes a plan may choose from.

    `zero` 0-3: 0 is Megatron's plain mixed precision, 1 its distributed optimiser. `extra_warmup` is the
    default depth added to 1F1B's warm-up in front of each wide-area boundary. `chunks` a stage: 1, or more
    with the interleaved schedule, 2 with ZB-V. `schedules`: those that a plan may choose from, if
    not `schedule` alone. `sequence_parallel`, `context_parallel`: those of
    its plans. `ep`: degrees of expert parallelism that they may have.
    """

    model: Transformer
    global_batch: int
    micro_batches_allowed: tuple[int, ...] = (1, 2, 4)
    schedule: Schedule = "1f1b"
    p2p: PointToPoint = "blocking"
    recompute: Recompute = "full"
    zero: int = 0
    bytes_per_moved_parameter: float = 14.0
    extra_warmup: int = 0
    chunks: int = 1
    schedules: tuple[Schedule, ...] = ()
    sequence_parallel: bool = False
    context_parallel: int = 1
    ep: tuple[int, ...] = (1,)
    switches: Switches = DEFAULT

    def __post_init__(self) -> None:
        if self.chunks < 1 or (fault := schedules.chunk_fault(self.schedule, self.chunks)):
            raise UsageError(f"chunks of the job: {fault}")
        if fault := schedules.choice_fault(self.schedule, self.schedules):
            raise UsageError(f"schedules of the job: {fault}")
        if self.global_batch < 1:
            raise UsageError(f"global_batch is {self.global_batch}; it must be at least 1")
        if not self.micro_batches_allowed or min(self.micro_batches_allowed) < 1:
            raise UsageError("micro_batches_allowed needs at least one size, each at least 1")
        if self.zero not in (0, 1, 2, 3):
            raise UsageError(f"zero stage {self.zero} does not exist; use 0, 1, 2 or 3")
        if fault := context_fault(self.model.seq, self.context_parallel):
            raise UsageError(f"context_parallel of the job: {fault}")
        if not self.ep:
            raise UsageError("ep of the job: name at least one degree of expert parallelism")
        for ep in self.ep:
            if fault := degree_fault(self.model.experts, ep):
                raise UsageError(f"ep of the job: {fault}")

    @property
    def tokens_per_iteration(self) -> int:
        """Tokens of one iteration."""
        return self.global_batch * self.model.seq

    @property
    def gradient_bytes(self) -> float:
        """Bytes of a gradient element in reductions: Megatron reduces those of bf16 in fp32."""
        if self.switches.gradient_dtype is not None:
            return 4.0 if self.switches.gradient_dtype == "fp32" else 2.0
        return 2.0 if self.model.dtype == "fp16" else 4.0

    @property
    def tensor_mode(self) -> TensorMode:
        """Mode in which the tensor groups of its plans share a block."""
        return TensorMode(
            self.sequence_parallel, self.switches.tp_overlap, self.context_parallel,
            self.switches.context_exchange, expert_imbalance=self.switches.expert_imbalance,
        )  # fmt: skip

    def micro_batches(self, dp: int, micro_batch: int, copies: int = 1) -> int | None:
        """Micro-batches per pipeline and iteration, None where `size_fault` names a reason.

        `dp`: ranks of each of `copies` replicas, as in `Plan`; context parallelism leaves dp / cp pipelines.
        """
        pipelines, left = divmod(dp, self.context_parallel)
        if left or not self.ep_of(dp):
            return None
        count, rest = divmod(self.global_batch, pipelines * micro_batch * copies)
        return count if rest == 0 and count > 0 else None

    def moved_bytes(self, layer: Layer) -> float:
        """Bytes of a layer that changes place: of what is frozen the weights alone."""
        return layer.trained * self.bytes_per_moved_parameter + layer.frozen * self.model.bytes_per_element

    def size_fault(self, dp: int, micro_batch: int) -> str:
        """Reason why `micro_batches` of these sizes is None."""
        if dp % self.context_parallel:
            return f"context_parallel {self.context_parallel} does not divide {dp} ranks"
        if not self.ep_of(dp):
            return f"ep {' or '.join(map(str, self.ep))} does not divide {dp} ranks"
        batch = f"dp {dp // self.context_parallel} x micro-batch {micro_batch}"
        return f"global batch {self.global_batch} is not a multiple of {batch}"

    def degrees(self, dp: int) -> tuple[int, ...]:
        """Degrees of expert parallelism that plans with `dp` ranks may have, the largest first."""
        return tuple(sorted({ep for ep in self.ep if dp % ep == 0}, reverse=True))

    def ep_of(self, dp: int) -> int:
        """The largest of `degrees`, with which the experts take least memory; 0: there is none."""
        return max(self.degrees(dp), default=0)

    def message_bytes(self, micro_batch: int) -> int:
        """Bytes of one activation (or its gradient) between stages, for one rank: mbs * s / cp * h * 2."""
        tokens = micro_batch * self.model.seq // self.context_parallel
        return tokens * self.model.hidden * self.model.bytes_per_element


def context_fault(seq: int, ranks: int) -> str | None:
    """Reason why `ranks` cannot split sequences of `seq` tokens; None if they can."""
    if ranks > 1 and seq % (2 * ranks):
        return (
            f"{ranks} ranks hold two parts each of {2 * ranks} of a sequence, and {seq} tokens are no "
            f"multiple of {2 * ranks}"
        )
    return None
