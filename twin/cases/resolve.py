"""Cases from the cells of a row: sets every default and finds every contradiction.

`Case.defaults` names the columns whose default was taken; `docs/guides/estimate.md` lists the defaults.
"""

from collections.abc import Mapping
from typing import Any

from twin.cases.case import Case, Measured, Times
from twin.cases.column_definitions import BY_NAME, GPUS, STAGES, BadCellError, Cell
from twin.cases.frameworks import filled
from twin.cases.resolve_model import DEFAULT_SEQ, model_of
from twin.cases.resolve_sites import kinds_of, sites_of
from twin.cases.resolve_wan import domains_of, names_of, replicas_of, wan_of
from twin.core import schedules
from twin.core.experts import degree_fault
from twin.core.job import JobSpec, context_fault
from twin.core.layer_split import stage_layers
from twin.core.plan import Schedule
from twin.core.switches import Switches
from twin.core.transformer import BYTES_PER_ELEMENT, Transformer

BLOCKING = ("gpipe", "1f1b")
LOOKING = ("crosspipe", "interleaved", "zb-h1", "zb-v")
MOST_OPERATIONS, MOST_LOOKS = 4_000_000, 50_000_000
"""Of an iteration, in a second or two; 96 stages with the largest published batches make 1 million."""


def resolve(cells: Mapping[str, Cell]) -> Case:
    """Case that `cells` describe.

    Raises:
        BadCellError: something is missing or contradicts itself; the message names a repair.
    """
    given, cells = cells, filled(cells)
    context = _context(cells)
    tp, pp, dp = _parallel(cells, cells.get("replicas", 1), context)
    copies = replicas_of(cells)
    micro_batch, micro_batches = _batch(cells, dp * copies.count)
    measured = _measured(cells, pp, micro_batches)
    domains = domains_of(cells, pp, measured) if copies.count == 1 else (0,) * pp
    kinds = kinds_of(cells, pp, domains)
    sites = sites_of(cells, kinds, tp * pp * dp * context)
    shaped = "hidden" in cells and "layers" in cells
    model = model_of(cells, kinds) if shaped or not measured.schedule_only else None
    schedule, chunks = _schedule(cells, pp, micro_batches)
    _check_operations(schedule, pp, chunks * micro_batches)
    p2p = cells.get("p2p", "blocking" if schedule in BLOCKING else "overlapped")
    job, ep = None, _expert_parallel(cells, model, dp * context)
    if model is not None:
        job = JobSpec(
            model, dp * micro_batch * micro_batches, (micro_batch,), schedule, p2p,
            cells.get("recompute", "full"), cells.get("zero", 0), chunks=chunks,
            sequence_parallel=cells.get("sequence_parallel", False), context_parallel=context, ep=(ep,),
            switches=_switches(cells),
        )  # fmt: skip
    return Case(
        label=cells.get("case", ""),
        site=sites[0],
        sites=() if len(set(sites)) == 1 else sites,
        model=model,
        message_bytes=_message_bytes(cells, micro_batch),
        tp=tp,
        pp=pp,
        dp=dp,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        counts=_counts(cells, model, pp, schedule, chunks),
        domains=domains,
        wan=wan_of(cells, domains, measured),
        job=job,
        schedule=schedule,
        chunks=chunks,
        p2p=p2p,
        measured=measured,
        defaults=tuple(name for name in BY_NAME if name not in given),
        replicas=copies,
        context_parallel=context,
        ep=ep,
        domain_names=names_of(cells, pp) if copies.count == 1 else (),
    )


def _context(cells: Mapping[str, Cell]) -> int:
    """Ranks that split each sequence."""
    ranks: int = cells.get("context_parallel", 1)
    if fault := context_fault(cells.get("seq", DEFAULT_SEQ), ranks):
        raise BadCellError("context_parallel", fault)
    return ranks


def _expert_parallel(cells: Mapping[str, Cell], model: Transformer | None, ranks: int) -> int:
    """Ranks that share the experts of a block."""
    ep: int = cells.get("ep", 1)
    if fault := degree_fault(None if model is None else model.experts, ep):
        raise BadCellError("ep", fault)
    if ranks % ep:
        raise BadCellError("ep", f"ep {ep} does not divide the {ranks} ranks of dp x context_parallel")
    return ep


def _parallel(cells: Mapping[str, Cell], copies: int, context: int) -> tuple[int, int, int]:
    """Sizes tp, pp, dp of each of `copies` replicas, which use `gpus` exactly with `context` GPUs for each
    of their ranks."""
    tp = cells.get("tp", 1)
    pp = cells.get("pp") or _stages_of_lists(cells)
    if fault := STAGES.fault(pp):
        raise BadCellError("pp", f"the lists make {pp:,} stages, which {fault}")
    gpus, each = cells.get("gpus"), tp * context * pp * copies
    split = f" x context_parallel {context}" if context > 1 else ""
    used = each * cells.get("dp", 1)
    if gpus is None:
        if fault := GPUS.fault(used):
            raise BadCellError("gpus", f"tp{split} x pp x dp is {used:,}, which {fault}")
        return tp, pp, cells.get("dp", 1)
    if "dp" not in cells and gpus % each == 0:
        return tp, pp, gpus // each
    if "dp" not in cells or used != gpus:
        raise BadCellError(
            "gpus", f"tp {tp}{split} x pp {pp} x dp {cells.get('dp', '?')} do not use {gpus} GPUs; "
            "change one of them or leave dp empty",
        )  # fmt: skip
    return tp, pp, cells["dp"]


def _check_operations(schedule: Schedule, pp: int, passes: int) -> None:
    """An iteration is computed operation by operation; some schedules look at every stage for each."""
    most = min(MOST_OPERATIONS, MOST_LOOKS // pp) if schedule in LOOKING else MOST_OPERATIONS
    if pp * passes > most:
        raise BadCellError(
            "micro_batches", f"{pp} stages x {passes:,} micro-batches and chunks are more than {most:,} "
            f"operations, which {schedule} takes too long for; raise dp or micro_batch",
        )  # fmt: skip


def _schedule(cells: Mapping[str, Cell], pp: int, micro_batches: int) -> tuple[Schedule, int]:
    """The schedule and its chunks; each implies the other."""
    schedule: Schedule = cells.get("schedule", "interleaved" if cells.get("chunks", 1) > 1 else "1f1b")
    chunks: int = cells.get("chunks", schedules.default_chunks(schedule))
    if fault := schedules.chunk_fault(schedule, chunks):
        raise BadCellError("chunks", fault)
    if schedule == "interleaved" and (pp < 2 or micro_batches % pp):
        raise BadCellError(
            "schedule", f"interleaved runs a multiple of pp micro-batches over two or more stages, not "
            f"{micro_batches} over {pp}; change pp or the batch",
        )  # fmt: skip
    return schedule, chunks


def _stages_of_lists(cells: Mapping[str, Cell]) -> int:
    """Number of stages that a list per stage or boundary implies, 1 without any."""
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


def _spread(cells: Mapping[str, Cell], name: str, size: int, what: str) -> Any:
    """A list of `size` entries; one value stands for all."""
    values: tuple[Any, ...] | None = cells.get(name)
    if values is None or len(values) == size:
        return values
    if len(values) != 1:
        raise BadCellError(name, f"{len(values)} entries for {size} {what}")
    return values * size


def _measured(cells: Mapping[str, Cell], pp: int, micro_batches: int) -> Measured:
    forward, backward = (
        _stages(cells, f"stage_{way}_s", pp, micro_batches) for way in ("forward", "backward")
    )
    return Measured(
        forward[0],
        backward[0],
        _spread(cells, "boundary_transfer_s", pp - 1, "boundaries"),
        _spread(cells, "boundary_latency_s", pp - 1, "boundaries"),
        _spread(cells, "reduction_s", pp, "stages"),
        _spread(cells, "update_s", pp, "stages"),
        forward[1],
        backward[1],
    )


def _stages(
    cells: Mapping[str, Cell], name: str, pp: int, micro_batches: int
) -> tuple[Times | None, tuple[Times, ...] | None]:
    """Mean time of a micro-batch in every stage, and of each micro-batch where they differ."""
    lists = _spread(cells, name, pp, "stages")
    if lists is None:
        return None, None
    for stage, times in enumerate(lists):
        if len(times) not in (1, micro_batches):
            raise BadCellError(
                name,
                f"stage {stage} has {len(times)} times for {micro_batches} micro-batches; write one or all",
            )
    means = tuple(sum(times) / len(times) for times in lists)
    if all(len(times) == 1 for times in lists):
        return means, None
    if (schedule := cells.get("schedule")) in schedules.SPLIT:
        raise BadCellError(name, f"{schedule} takes one time for all micro-batches; write their mean")
    return means, tuple(times if len(times) > 1 else times * micro_batches for times in lists)


def _switches(cells: Mapping[str, Cell]) -> Switches:
    """Switches of the framework."""
    return Switches(
        shard_activations=False,
        gradient_dtype=cells.get("gradient_dtype"),
        overlap_reduction=cells.get("overlap_reduction"),
        bucket_bytes=cells.get("bucket_bytes"),
        fp32_logits=cells.get("fp32_logits", False),
        context_bytes=cells.get("context_bytes"),
        tp_overlap=cells.get("tp_overlap", False),
        offload_optimiser=cells.get("offload_optimiser", False),
        context_exchange=cells.get("context_exchange", "ring"),
        expert_imbalance=cells.get("expert_imbalance", 1.0),
    )


def _counts(
    cells: Mapping[str, Cell], model: Transformer | None, pp: int, schedule: Schedule, chunks: int
) -> tuple[int, ...]:
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
    counts = list(cuts or stage_layers(pp, model.blocks, False, False))
    counts[0] += 1
    counts[0 if schedules.turns(schedule) else -1] += 1
    return tuple(counts)
