"""One case of `twin estimate`, every value set; `twin.cases.resolve` makes it from the cells of a row."""

from dataclasses import dataclass
from math import inf
from typing import Any

from ingest.core.units import BITS_PER_BYTE
from twin.core import schedules
from twin.core.domain import Domain
from twin.core.job import JobSpec
from twin.core.plan import PointToPoint, Schedule
from twin.core.transformer import Transformer
from twin.costs import energy

Times = tuple[float, ...]
Wan = tuple[tuple[float, float] | None, ...]
"""Bits per second and one-way seconds of every boundary (S - 1,); None inside a domain."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured times that override the models: per stage (S,), per boundary (S - 1,); None where not
    given."""

    forward_s: Times | None
    backward_s: Times | None
    transfer_s: Times | None
    latency_s: Times | None
    reduction_s: Times | None = None
    update_s: Times | None = None
    forward_each_s: tuple[Times, ...] | None = (
        None  # (S, m) where micro-batches differ; `forward_s` is the mean
    )
    backward_each_s: tuple[Times, ...] | None = None

    @property
    def schedule_only(self) -> bool:
        """True where forward and backward are measured: the models add what follows the last backward, if
        anything."""
        return self.forward_s is not None and self.backward_s is not None


@dataclass(frozen=True, slots=True)
class Replicas:
    """Copies of the whole model, one a domain, that average every `inner_steps` iterations over a ring of
    links of `bps` bits per second and `latency_s` one-way seconds; `count` 1: none."""

    count: int = 1
    inner_steps: int = 1
    bps: float = inf
    latency_s: float = 0.0


ALONE = Replicas()


@dataclass(frozen=True, slots=True)
class Case:
    """One case, every value set. `counts` are layers per stage, embedding and head among them.

    `sites`: those of the stages (S,) where these have several GPU models; else `site` is that of all.
    `model` is None where measured stage times make it unnecessary, `message_bytes` where nothing says how
    large an activation is.
    """

    label: str
    site: Domain
    model: Transformer | None
    message_bytes: int | None
    tp: int
    pp: int
    dp: int
    micro_batch: int
    micro_batches: int
    counts: tuple[int, ...]
    domains: tuple[int, ...]
    wan: Wan
    job: JobSpec | None
    schedule: Schedule
    chunks: int
    p2p: PointToPoint
    measured: Measured
    defaults: tuple[str, ...]
    replicas: Replicas = ALONE
    context_parallel: int = 1
    ep: int = 1
    sites: tuple[Domain, ...] = ()
    domain_names: tuple[str, ...] = ()  # in order of appearance, where the column `domains` names them

    @property
    def of_stages(self) -> tuple[Domain, ...]:
        """Site of every stage (S,)."""
        return self.sites or (self.site,) * self.pp

    @property
    def ranks(self) -> int:
        """Ranks of a stage that reduce their gradients together, `dp` of a `Plan`."""
        return self.dp * self.context_parallel

    @property
    def returns(self) -> bool:
        """True where the last stage sends micro-batches to the first."""
        return schedules.returns(self.schedule, self.chunks)

    @property
    def around(self) -> tuple[float, float] | None:
        """Bandwidth and latency from the last stage back to the first, as in `wan`; None inside a domain.

        As slow as the slowest boundary; measured times take precedence over the columns.
        """
        across = [(b, *wan) for b, wan in enumerate(self.wan) if wan is not None]
        if not across or self.domains[0] == self.domains[-1]:
            return None
        sent, late, bits = self.measured.transfer_s, self.measured.latency_s, 0.0
        if self.message_bytes is not None:
            bits = BITS_PER_BYTE * self.message_bytes * self.dp
        return (
            min(bits / sent[b] if bits and sent and sent[b] else bps for b, bps, _ in across),
            max(late[b] if late else latency for b, _, latency in across),
        )

    @property
    def gpus(self) -> int:
        """tp x context_parallel x pp x dp, of all replicas."""
        return self.tp * self.pp * self.ranks * self.replicas.count

    @property
    def global_batch(self) -> int:
        """Sequences of one iteration."""
        return self.dp * self.micro_batch * self.micro_batches * self.replicas.count


def summary(case: Case) -> dict[str, Any]:
    """The resolved case in the names of its columns, for `--explain`."""
    shown: dict[str, Any] = {
        "gpu_model": case.site.gpu.name, "gpus": case.gpus, "gpus_per_node": case.site.gpus_per_node,
        "tp": case.tp, "pp": case.pp, "dp": case.dp, "micro_batch": case.micro_batch,
        "micro_batches": case.micro_batches, "global_batch": case.global_batch,
        "context_parallel": case.context_parallel, "ep": case.ep, "schedule": case.schedule,
        "chunks": case.chunks, "p2p": case.p2p, "domains": "-".join(str(k) for k in case.domains),
    }  # fmt: skip
    if case.sites:
        shown["gpu_models"] = ";".join(site.gpu.name for site in case.sites)
    if case.site.gpu.limited:
        shown |= {
            "power_cap_w": case.site.gpu.power_cap_w, "clock_cap": case.site.gpu.clock_cap,
            "clock under these": energy.clock(case.site.gpu),
        }  # fmt: skip
    if case.model is not None and case.job is not None:
        model = case.model
        shown |= {
            "layers": model.blocks, "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads,
            "ffn": model.ffn, "vocab": model.vocab, "seq": model.seq, "dtype": model.dtype,
            "attention": model.attention, "recompute": case.job.recompute, "zero": case.job.zero,
            "sequence_parallel": case.job.sequence_parallel,
            "cuts (with embedding and head)": "-".join(map(str, case.counts)),
        }  # fmt: skip
        if model.adapters is not None:
            shown |= {"lora_rank": model.adapters.rank, "lora_targets": ";".join(model.adapters.targets)}
        if model.head_dim:
            shown["head_dim"] = model.head_dim
        if model.latent is not None:
            low = model.latent
            shown |= {
                "q_lora_rank": low.query_rank, "kv_lora_rank": low.kv_rank, "qk_nope_head_dim": low.nope,
                "qk_rope_head_dim": low.rope, "v_head_dim": low.value,
            }  # fmt: skip
        if model.experts is not None:
            held = model.experts
            shown |= {
                "experts": held.count, "top_k": held.top_k, "expert_ffn": held.ffn, "shared_ffn": held.shared,
                "moe_every": held.every, "moe_first": held.first,
                "expert_imbalance": case.job.switches.expert_imbalance,
            }  # fmt: skip
    return shown
