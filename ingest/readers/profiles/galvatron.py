"""Galvatron's JSON profiles: forward time, memory, and bandwidth of collectives.

Each file is one object whose keys say what was measured:
`layernum[L]_bszB[_seqS]` ms forward of a model of L layers; `layertype_0` ms forward of one layer for one
sample; in memory files `PP_TP_DP[...]` holds `layernum[L]_bszB[_seqS]_rankR_ms|act|act_peak` in MiB: model
states, activations, peak; in hardware files `allreduce_size_N_consec_C` and `pp_size_N` GB/s,
`<op>_size_N_<M>MB_time` ms. What the files compute from these (`layertype_0_bszB` in computation files,
`layertype_*` and `other_memory_*` in memory files; differences that noise makes negative) is no row.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import BITS_PER_BYTE, GB, MIB, MS
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, folder, from_document
from ingest.parsing.source import BOM, Source

_LAYERS, _RATES = "layer_profiles", "collective_profiles"
_FILE = re.compile(
    r"(?:computation|memory)_profiling_([a-z0-9]+)_(hidden\d+)_(head\d+)(?:_seqlen(\d{1,9}))?\.json"
)
_MEASURE = re.compile(
    r"layernum\[(\d{1,6})\]_bsz(\d{1,6})(?:_seq(\d{1,9}))?(?:_rank(\d{1,6})_(ms|act|act_peak))?"
)
_ONE_LAYER = re.compile(r"layertype_(?:other_)?\d{1,4}")
_DIFFERENCE = re.compile(r"layertype_(?:other_)?\d{1,4}_bsz")
_SETTING = re.compile(r"\d{1,6}_(\d{1,6})_(\d{1,6})(?:_[a-z_]+)?")
_BANDWIDTH = re.compile(r"(allreduce|pp)_size_(\d{1,6})(?:_consec_([01]))?")
_TIME = re.compile(r"(allreduce|all2all)_size_(\d{1,6})_(\d{1,6})MB_time")
_MACHINE = re.compile(r"(\d{1,4})nodes_(\d{1,4})gpus_per_node")
_OPS = {"allreduce": "all_reduce", "all2all": "all_to_all", "pp": "send_recv"}
_KEYS = re.compile(
    rb'\{\s*"(?:layernum\[|layertype_(?:other_)?\d|allreduce_size_\d+_|pp_size_\d'
    rb'|\d+_\d+_\d+[a-z_]*"\s*:\s*\{\s*"layernum\[)'
)


class Galvatron:
    """Computation, memory and hardware profiles."""

    name = "galvatron"
    version = 1
    by_name = True
    tables = (_LAYERS, _RATES)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the first key is one of Galvatron's."""
        return bool(_KEYS.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each measurement."""

        def made(document: dict[str, Any]) -> Iterator[RowBatch]:
            keys = list(document)
            if any(_BANDWIDTH.match(key) for key in keys):
                yield _hardware(document, source, options)
            elif any(isinstance(value, dict) for value in document.values()):
                yield _memory(document, source, options)
            else:
                yield _computation(document, source, options)

        return from_document(source, _LAYERS, made)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "galvatron: a row of layer `model of L layers` is the forward time of the whole small model; "
            "subtract two L for one layer",
            "galvatron: MB of memory are MiB; the batch of a memory profile is shared by the data-parallel "
            "ranks, micro_batch = bsz / dp",
            "galvatron: bandwidths are bus bandwidths without a message size; strided groups and pipelines "
            "of a machine of several nodes cross nodes",
        )


def _model(source: Source, options: DatasetOptions) -> dict[str, Any]:
    """Model, GPU and precision, from the file's name, else from the two folders it lies in."""
    named = _FILE.fullmatch(source.path.name)
    if named is None:
        gpu = options.gpu_model or folder(source, options)
        return {"model": folder(source, options, 2), "gpu_model": gpu}
    model = "-".join(part for part in (folder(source, options), named[2], named[3]) if part)
    return {"model": model, "gpu_model": options.gpu_model, "seq": int(named[4]) if named[4] else None}


def _computation(document: dict[str, Any], source: Source, options: DatasetOptions) -> RowBatch:
    stated = _model(source, options)
    seq = stated.pop("seq", None)
    rows = RowBuilder(_LAYERS, ("layer", "micro_batch", "seq", "forward_s"), tp=1, **stated)
    measured = [(key, value) for key, value in document.items() if not _DIFFERENCE.match(key)]
    for row, (key, value) in enumerate(measured, 1):
        rows.take(row, key, value, _computed, key, value, seq)
    return rows.batch()


def _computed(key: str, value: Any, seq: int | None) -> tuple[str, int, int | None, float]:
    """Layer, micro-batch and sequence length that a key names, and the time."""
    time_s = amount(value) * MS
    if _ONE_LAYER.fullmatch(key):
        return key, 1, seq, time_s
    found = _MEASURE.fullmatch(key)
    if found is None or found[4]:
        raise ValueError("not a key of a computation profile")
    return f"model of {found[1]} layers", int(found[2]), int(found[3]) if found[3] else seq, time_s


def _memory(document: dict[str, Any], source: Source, options: DatasetOptions) -> RowBatch:
    stated = _model(source, options)
    seq = stated.pop("seq", None)
    names = ("layer", "tp", "micro_batch", "seq", "variant", "states_bytes", "activation_bytes", "peak_bytes")
    rows = RowBuilder(_LAYERS, names, **stated)
    for setting, measures in document.items():
        split = _SETTING.fullmatch(setting)
        if split is None:
            continue  # computed from the other keys
        for key, sizes in _by_model(measures).items():
            rows.take(len(rows) + 1, setting, sizes, _held, split, key, sizes, seq)
    return rows.batch()


def _held(
    split: re.Match[str], key: tuple[str, ...], sizes: dict[str, Any], seq: int | None
) -> tuple[Any, ...]:
    """The memory of one rank of a small model."""
    layers, batch, own_seq, rank = key
    micro_batch, rest = divmod(whole(batch), whole(split[2]))
    if rest or not micro_batch:
        raise ValueError(f"a batch of {batch} for {split[2]} data-parallel ranks")
    memory = [round(amount(sizes[n]) * MIB) if n in sizes else None for n in ("ms", "act", "act_peak")]
    setting = (f"model of {layers} layers", whole(split[1]), micro_batch, int(own_seq) if own_seq else seq)
    return *setting, f"{split[0]} rank {rank}", *memory


def _by_model(measures: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The sizes of one setting, grouped by layers, batch, sequence length and rank."""
    grouped: dict[tuple[Any, ...], dict[str, Any]] = {}
    for key, value in measures.items():
        found = _MEASURE.fullmatch(key)
        if found is None or not found[5]:
            raise ValueError(f"{key!r} is not a key of a memory profile")
        grouped.setdefault(found.groups()[:4], {})[found[5]] = value
    return grouped


def _hardware(document: dict[str, Any], source: Source, options: DatasetOptions) -> RowBatch:
    machine = _MACHINE.search(source.path.name)
    nodes, each = (int(machine[1]), int(machine[2])) if machine else (1, 1 << 30)
    names = ("op", "ranks", "nodes", "variant", "bytes", "time_s", "bandwidth_bps")
    rows = RowBuilder(_RATES, names, gpu_model=options.gpu_model)
    for row, (key, value) in enumerate(document.items(), 1):
        rows.take(row, key, value, _rate, key, value, nodes, max(each, 1))
    return rows.batch()


def _rate(key: str, value: Any, nodes: int, each: int) -> tuple[Any, ...]:
    timed, rated = _TIME.fullmatch(key), _BANDWIDTH.fullmatch(key)
    if timed:
        ranks = int(timed[2])
        size = int(timed[3]) * MIB
        return _OPS[timed[1]], ranks, -(-ranks // each), None, size, amount(value) * MS, None
    if rated is None:
        raise ValueError("not a key of a hardware profile")
    ranks, adjacent = int(rated[2]), rated[3] == "1"
    over = -(-ranks // each) if adjacent else min(nodes, ranks)
    variant = {"1": "adjacent ranks", "0": "strided ranks"}.get(rated[3])
    return _OPS[rated[1]], ranks, over, variant, None, None, amount(value) * GB * BITS_PER_BYTE  # GB/s
