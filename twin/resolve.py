"""From the cells of a row to a case without gaps: every default is taken here, and every contradiction found.

Nothing is guessed silently: `Case.defaults` names the columns whose default was taken, `docs/estimate.md`
says what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ingest.errors import UsageError
from ingest.units import BITS_PER_BYTE
from twin import gpu
from twin.columns import BY_NAME, BadCellError, Cell
from twin.domain import Domain
from twin.job import JobSpec
from twin.plan import PointToPoint, Schedule
from twin.split import stage_layers
from twin.transformer import BYTES_PER_ELEMENT, Transformer

DEFAULT_SEQ = 2048
DEFAULT_VOCAB = 51200
"""GPT's 50,257 padded to a multiple of 1,024, as Megatron's published runs have it."""
OLDER_THAN_AMPERE = ("V100", "RTX-2080", "TITAN")
WRITES_SCORES = ("V100", "RTX-2080", "TITAN", "A100", "A40", "RTX-3090")
"""GPUs whose GPT runs are taken to write the s x s scores to memory; newer GPUs, and newer blocks anywhere,
use fused attention."""
USD_PER_GB = 0.02
"""Egress between regions of one continent (the price Sailor charges, SOSP 2025)."""
BLOCKING = ("gpipe", "1f1b")

Times = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """Pieces that override the models: per stage (S,), per boundary (S - 1,); None where not given."""

    forward_s: Times | None
    backward_s: Times | None
    transfer_s: Times | None
    latency_s: Times | None

    @property
    def schedule_only(self) -> bool:
        """Forward and backward are known, so the answer is the makespan of the schedule alone."""
        return self.forward_s is not None and self.backward_s is not None


@dataclass(frozen=True, slots=True)
class Case:
    """One question without gaps. `counts` are layers per stage, embedding and head among them.

    `wan` (S - 1,): (bits per second, one-way seconds) of the boundaries between domains, None inside one.
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
    wan: tuple[tuple[float, float] | None, ...]
    job: JobSpec | None
    schedule: Schedule
    chunks: int
    p2p: PointToPoint
    measured: Measured
    defaults: tuple[str, ...]

    @property
    def around(self) -> tuple[float, float] | None:
        """Bandwidth and latency from the last stage back to the first, as in `wan`; None inside a domain.

        As slow as the slowest boundary; what was measured there goes before the columns.
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
        """tp x pp x dp."""
        return self.tp * self.pp * self.dp

    @property
    def global_batch(self) -> int:
        """Sequences of one iteration."""
        return self.dp * self.micro_batch * self.micro_batches


def resolve(cells: Mapping[str, Cell]) -> Case:
    """The case that `cells` describe.

    Raises:
        BadCellError: something is missing or contradicts itself; the message says how to repair it.
    """
    tp, pp, dp = _parallel(cells)
    micro_batch, micro_batches = _batch(cells, dp)
    measured = _measured(cells, pp)
    kind = cells.get("gpu_model", "A100-80")
    shaped = "hidden" in cells and "layers" in cells
    model = _model(cells, kind) if shaped or not measured.schedule_only else None
    schedule, chunks = _schedule(cells, pp, micro_batches)
    p2p = cells.get("p2p", "blocking" if schedule in BLOCKING else "overlapped")
    domains = _domains(cells, pp, measured)
    job = None
    if model is not None:
        job = JobSpec(
            model, dp * micro_batch * micro_batches, (micro_batch,), schedule, p2p,
            cells.get("recompute", "full"), cells.get("zero", 0), chunks=chunks,
        )  # fmt: skip
    return Case(
        label=cells.get("case", ""),
        site=_site(cells, kind, tp * pp * dp, tp),
        model=model,
        message_bytes=_message_bytes(cells, micro_batch),
        tp=tp,
        pp=pp,
        dp=dp,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        counts=_counts(cells, model, pp, chunks),
        domains=domains,
        wan=_wan(cells, domains, measured),
        job=job,
        schedule=schedule,
        chunks=chunks,
        p2p=p2p,
        measured=measured,
        defaults=tuple(name for name in BY_NAME if name not in cells),
    )


def _parallel(cells: Mapping[str, Cell]) -> tuple[int, int, int]:
    """tp, pp, dp, and that they use `gpus` exactly."""
    tp = cells.get("tp", 1)
    pp = cells.get("pp") or _stages_of_lists(cells)
    gpus = cells.get("gpus")
    if gpus is None:
        return tp, pp, cells.get("dp", 1)
    if "dp" not in cells and gpus % (tp * pp) == 0:
        return tp, pp, gpus // (tp * pp)
    used = tp * pp * cells.get("dp", 1)
    if "dp" not in cells or used != gpus:
        raise BadCellError(
            "gpus", f"tp {tp} x pp {pp} x dp {cells.get('dp', '?')} do not use {gpus} GPUs; "
            "change one of them or leave dp empty",
        )  # fmt: skip
    return tp, pp, cells["dp"]


def _schedule(cells: Mapping[str, Cell], pp: int, micro_batches: int) -> tuple[Schedule, int]:
    """The schedule and its chunks; each implies the other."""
    schedule: Schedule = cells.get("schedule", "interleaved" if cells.get("chunks", 1) > 1 else "1f1b")
    chunks: int = cells.get("chunks", 2 if schedule == "interleaved" else 1)
    if (schedule == "interleaved") != (chunks > 1):
        raise BadCellError("chunks", f"{chunks} with {schedule}: interleaved has 2 or more, the others 1")
    if chunks > 1 and (pp < 2 or micro_batches % pp):
        raise BadCellError(
            "schedule", f"interleaved runs a multiple of pp micro-batches over two or more stages, not "
            f"{micro_batches} over {pp}; change pp or the batch",
        )  # fmt: skip
    return schedule, chunks


def _stages_of_lists(cells: Mapping[str, Cell]) -> int:
    """Stages that a list per stage or boundary implies, 1 without any."""
    for name, more in (
        ("stage_forward_s", 0), ("stage_backward_s", 0), ("cuts", 0), ("boundary_transfer_s", 1),
        ("boundary_latency_s", 1),
    ):  # fmt: skip
        if name in cells and (more or len(cells[name]) > 1):
            return len(cells[name]) + more
    if len(cells.get("domains", ())) > 1:
        return len(cells["domains"])
    return 1


def _batch(cells: Mapping[str, Cell], dp: int) -> tuple[int, int]:
    """Micro-batch size and count."""
    size, batch, given = cells.get("micro_batch", 1), cells.get("global_batch"), cells.get("micro_batches")
    if batch is None:
        if given is None:
            raise BadCellError("global_batch", "give global_batch, or micro_batches")
        return size, given
    found, rest = divmod(batch, dp * size)
    if rest or not found:
        near = max(1, round(batch / (dp * size))) * dp * size
        raise BadCellError(
            "global_batch", f"{batch} is not a multiple of dp {dp} x micro_batch {size}; {near} is"
        )
    if given is not None and given != found:
        raise BadCellError(
            "micro_batches",
            f"{given}, but global_batch {batch} / (dp {dp} x micro_batch {size}) is {found}; leave one empty",
        )
    return size, found


def _message_bytes(cells: Mapping[str, Cell], micro_batch: int) -> int | None:
    """One activation between stages of one pipeline."""
    if "hidden" not in cells:
        return None
    element = BYTES_PER_ELEMENT[cells.get("dtype", "bf16")]
    return int(micro_batch * cells.get("seq", DEFAULT_SEQ) * cells["hidden"] * element)


def _spread(cells: Mapping[str, Cell], name: str, size: int, what: str) -> Times | None:
    """A list of `size` entries; one value stands for all."""
    values: Times | None = cells.get(name)
    if values is None or len(values) == size:
        return values
    if len(values) != 1:
        raise BadCellError(name, f"{len(values)} entries for {size} {what}")
    return values * size


def _measured(cells: Mapping[str, Cell], pp: int) -> Measured:
    return Measured(
        _spread(cells, "stage_forward_s", pp, "stages"),
        _spread(cells, "stage_backward_s", pp, "stages"),
        _spread(cells, "boundary_transfer_s", pp - 1, "boundaries"),
        _spread(cells, "boundary_latency_s", pp - 1, "boundaries"),
    )


def _model(cells: Mapping[str, Cell], kind: str) -> Transformer:
    """The Transformer of the row: its MLP and its key-value heads tell the family."""
    for name in ("hidden", "layers"):
        if name not in cells:
            raise BadCellError(
                name, f"{name} is missing; give it, or both stage_forward_s and stage_backward_s"
            )
    hidden = cells["hidden"]
    heads = cells.get("heads", hidden // 128 if hidden % 128 == 0 else max(1, hidden // 64))
    ffn, kv_heads = cells.get("ffn", 4 * hidden), cells.get("kv_heads", heads)
    gated = ffn != 4 * hidden
    classic = not gated and kv_heads == heads
    scores = classic and kind.startswith(WRITES_SCORES)
    dtype = cells.get("dtype", "fp16" if kind.startswith(OLDER_THAN_AMPERE) else "bf16")
    try:
        return Transformer(
            "case", cells["layers"], hidden, heads, kv_heads, ffn, gated,
            cells.get("seq", DEFAULT_SEQ), cells.get("vocab", DEFAULT_VOCAB), dtype, bias=classic,
            learned_positions=classic, layer_norm=classic, tied=classic, dropout=classic,
            attention=cells.get("attention", "materialised" if scores else "flash"),
        )  # fmt: skip
    except UsageError as error:
        column = "kv_heads" if "kv_heads" in str(error) else "heads"
        raise BadCellError(column, str(error).removeprefix("model case: ")) from None


def _site(cells: Mapping[str, Cell], kind: str, gpus: int, tp: int) -> Domain:
    """What every domain is made of; a tensor group that spans nodes talks at the network's speed."""
    usual = gpu.fabric(kind)
    per_node = cells.get("gpus_per_node", usual.gpus_per_node)
    intra, inter = (
        cells.get("intra_node_bps", usual.intra_node_bps),
        cells.get("inter_node_bps", usual.inter_node_bps),
    )
    site = Domain(
        "site", gpu.preset(kind), gpus, per_node, intra, inter,
        usual.intra_node_latency_s, usual.inter_node_latency_s, 0.0,
    )  # fmt: skip
    if tp <= per_node:
        return site
    return replace(site, intra_node_bps=min(intra, inter), intra_node_latency_s=usual.inter_node_latency_s)


def _even(total: int, parts: int) -> list[int]:
    """`total` over `parts` as evenly as possible, the remainder to the last ones."""
    base, rest = divmod(total, parts)
    return [base + (i >= parts - rest) for i in range(parts)]


def _counts(cells: Mapping[str, Cell], model: Transformer | None, pp: int, chunks: int) -> tuple[int, ...]:
    """Layers per stage, with embedding and head."""
    cuts: tuple[int, ...] | None = cells.get("cuts")
    if cuts is not None and len(cuts) != pp:
        raise BadCellError("cuts", f"{len(cuts)} entries for {pp} stages")
    if model is None:
        return cuts or ()
    if cuts is not None and sum(cuts) == model.blocks + 2:
        return cuts
    if cuts is not None and sum(cuts) != model.blocks:
        raise BadCellError(
            "cuts", f"the entries sum to {sum(cuts)}; the model has {model.blocks} layers "
            f"({model.blocks + 2} with embedding and head)",
        )  # fmt: skip
    if cuts is None and model.blocks < pp:
        raise BadCellError("pp", f"{model.blocks} layers cannot fill {pp} stages")
    if chunks > 1 and min(cuts or (model.blocks // pp,)) < chunks:
        raise BadCellError("chunks", f"{chunks} chunks in every stage are more than it has layers")
    if cuts is None:
        return stage_layers(pp, model.blocks + 2, True, True)
    counts = list(cuts)
    counts[0] += 1
    counts[-1] += 1
    return tuple(counts)


def _domains(cells: Mapping[str, Cell], pp: int, measured: Measured) -> tuple[int, ...]:
    """Domain of every stage (S,), numbered in order of appearance."""
    given: tuple[str, ...] | None = cells.get("domains")
    if given is None:
        return _implied_domains(cells, pp, measured)
    if len(given) == pp and pp > 1:
        names = list(dict.fromkeys(given))
        return tuple(names.index(name) for name in given)
    if len(given) > 1:
        stages = [int(part) for part in given if part.isdecimal()]
        if len(stages) < len(given) or sum(stages) != pp or 0 in stages:
            raise BadCellError(
                "domains", f"{len(given)} entries for {pp} stages; name the domain of every stage (a-a-b-b), "
                "or how many stages each domain has (2-2)",
            )  # fmt: skip
        return tuple(k for k, many in enumerate(stages) for _ in range(many))
    try:
        wanted = int(given[0])
    except ValueError:
        return (0,) * pp  # one name: everything lies there
    if not 1 <= wanted <= pp:
        raise BadCellError("domains", f"{wanted} domains need at least as many stages, pp is {pp}; raise pp")
    return tuple(k for k, stages in enumerate(_even(pp, wanted)) for _ in range(stages))


def _implied_domains(cells: Mapping[str, Cell], pp: int, measured: Measured) -> tuple[int, ...]:
    """Without `domains`: a boundary with a cost in a list per boundary is one between domains."""
    wan: Times = cells.get("wan_bps", ())
    across = [False] * (pp - 1)
    if measured.transfer_s or measured.latency_s:
        rows = [row for row in (measured.transfer_s, measured.latency_s) if row]
        across = [any(column) for column in zip(*rows, strict=True)]
    elif wan and len(wan) == pp - 1:
        across = [bps > 0 for bps in wan]
    elif wan:
        if pp == 1:
            raise BadCellError("wan_bps", "one stage has no wide-area boundary: raise pp or empty this cell")
        if len(wan) > pp - 1:
            raise BadCellError("wan_bps", f"{len(wan)} entries, but {pp} stages have {pp - 1} boundaries")
        halves = _even(pp, len(wan) + 1)
        across = [i + 1 in {sum(halves[: k + 1]) for k in range(len(wan))} for i in range(pp - 1)]
    domain = [0]
    for crossed in across:
        domain.append(domain[-1] + crossed)
    return tuple(domain)


def _wan(
    cells: Mapping[str, Cell], domains: tuple[int, ...], measured: Measured
) -> tuple[tuple[float, float] | None, ...]:
    """Bandwidth and latency of every boundary that joins two domains."""
    crossed = [i for i in range(len(domains) - 1) if domains[i] != domains[i + 1]]
    bps = _per_boundary(cells, "wan_bps", crossed, len(domains) - 1)
    latency = _per_boundary(cells, "wan_latency_s", crossed, len(domains) - 1)
    found: list[tuple[float, float] | None] = [None] * (len(domains) - 1)
    for i in crossed:
        if not bps.get(i) and measured.transfer_s is None:
            if i in bps:
                raise BadCellError(
                    "wan_bps",
                    f"0 between stages {i} and {i + 1}, which lie in two domains: nothing would ever arrive",
                )
            raise BadCellError(
                "wan_bps", f"stages {i} and {i + 1} lie in different domains: give the bandwidth"
            )
        if bps.get(i) and measured.transfer_s is None and "hidden" not in cells:
            raise BadCellError(
                "hidden", "a message over wan_bps is as large as hidden, seq and micro_batch make it: give "
                "hidden, or boundary_transfer_s",
            )  # fmt: skip
        found[i] = (bps.get(i, float("inf")) or float("inf"), latency.get(i, 0.0))
    return tuple(found)


def _per_boundary(cells: Mapping[str, Cell], name: str, crossed: list[int], all_of: int) -> dict[int, float]:
    """Values of a list by stage boundary: one for all, one per crossing, or one per stage boundary."""
    values: tuple[float, ...] = cells.get(name, ())
    if not values or not crossed:
        return {}
    if len(values) == all_of:
        return {i: values[i] for i in crossed}
    if len(values) == 1:
        return dict.fromkeys(crossed, values[0])
    if len(values) != len(crossed):
        raise BadCellError(
            name,
            f"{len(values)} entries for {len(crossed)} wide-area boundaries and {all_of} stage boundaries",
        )
    return dict(zip(crossed, values, strict=True))


def summary(case: Case) -> dict[str, Any]:
    """The resolved case in the names of its columns, for `--explain`."""
    shown: dict[str, Any] = {
        "gpu_model": case.site.gpu.name, "gpus": case.gpus, "gpus_per_node": case.site.gpus_per_node,
        "tp": case.tp, "pp": case.pp, "dp": case.dp, "micro_batch": case.micro_batch,
        "micro_batches": case.micro_batches, "global_batch": case.global_batch,
        "schedule": case.schedule, "chunks": case.chunks, "p2p": case.p2p,
        "domains": "-".join(str(k) for k in case.domains),
    }  # fmt: skip
    if case.model is not None and case.job is not None:
        model = case.model
        shown |= {
            "layers": model.blocks, "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads,
            "ffn": model.ffn, "vocab": model.vocab, "seq": model.seq, "dtype": model.dtype,
            "attention": model.attention, "recompute": case.job.recompute, "zero": case.job.zero,
            "cuts (with embedding and head)": "-".join(map(str, case.counts)),
        }  # fmt: skip
    return shown
