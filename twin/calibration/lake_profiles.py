"""Layer times as a data set of the lake measured them, in place of those of the cost models.

Numbered layers (Sailor's and similar files: embedding, blocks, norm and head, tensor-parallel collectives
inside a node included) and whole blocks (`twin profile`). What a profile lacks, a width, a micro-batch
outside its range or a group wider than a node, comes from the constants in use, and `basis` says so.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.terminal import shown
from twin.calibration.calibrate import collective_fits, model_of, profiles
from twin.calibration.least_squares import Fit
from twin.calibration.profiled_layers import UNNAMED, label_of
from twin.core.domain import Domain
from twin.core.plan import Recompute
from twin.core.switches import PLAIN, TensorMode
from twin.core.transformer import Transformer
from twin.costs.layer_compute import ComputeModel, LayerTimes, layer_times

Float = NDArray[np.float64]
Key = tuple[str, str]
"""Model and GPU model, the latter by its canonical name."""
NORM_AND_HEAD = (1, 2)
"""Layers behind the blocks: the head, with the final norm in it or beside it."""

_LAYERS = """
    SELECT model, gpu_model, tp, micro_batch, layer, median(forward_s), median(backward_s), median(update_s),
    min(seq) FROM layer_profiles
    WHERE dataset = $dataset AND forward_s > 0 AND backward_s IS NOT NULL AND gpu_model IS NOT NULL
    AND model IS NOT NULL AND variant IS NULL AND (layer = 'block' OR regexp_full_match(layer, '[0-9]{1,4}'))
    GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True, eq=False)
class Width:
    """Profile of one tensor-parallel width: micro-batches (M,) ascending, forward, backward and update
    seconds (M, L) of the layers; L is 1 where a block alone is measured. NaN: no update time."""

    sizes: Float
    forward_s: Float
    backward_s: Float
    update_s: Float

    def at(self, micro_batch: int) -> tuple[Float, Float, Float]:
        """Forward, backward and update seconds (L,), linear between the measured micro-batches."""
        forward, backward, update = (
            np.array([np.interp(micro_batch, self.sizes, column) for column in rows.T])
            for rows in (self.forward_s, self.backward_s, self.update_s)
        )
        return forward, backward, update


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """Result of a look-up: the profile's seconds by layer, None where they come from the models, and the
    reason or the place in words."""

    times: tuple[Float, Float, Float] | None
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class LakeProfiles:
    """Source of layer times: the profiles of `dataset`, else `otherwise`.

    `names`: name of the profile by that of the model, where they differ. `digest` is that of the rows.
    """

    dataset: str
    digest: str
    layers: Mapping[Key, Mapping[int, Width]]
    seqs: Mapping[Key, int]
    links: Mapping[str, Fit]
    otherwise: ComputeModel = layer_times
    names: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self, model: Transformer, domain: Domain, tp: int, micro_batch: int, recompute: Recompute,
        *, mode: TensorMode = PLAIN,
    ) -> LayerTimes:  # fmt: skip
        """Layer times; recompute adds to the measured backward what the models say it costs, in full the
        measured forward."""
        modelled = self.otherwise(model, domain, tp, micro_batch, recompute, mode=mode)
        found = self.look(model, domain, tp, micro_batch, mode).times
        if found is None:
            return modelled
        forward, backward = _of_model(found[0], model), _of_model(found[1], model)
        once = forward if recompute == "full" else np.zeros_like(forward)
        if recompute == "selective":
            plain = self.otherwise(model, domain, tp, micro_batch, "none", mode=mode)
            once = modelled.backward_s - plain.backward_s
        backward[1:-1] += once[1:-1]
        missing = np.isnan(forward)
        return LayerTimes(
            np.where(missing, modelled.forward_s, forward), np.where(missing, modelled.backward_s, backward)
        )

    def name_of(self, model: Transformer) -> str:
        """Name of the model in the profiles: as given, else that of its shape."""
        name = self.names.get(model.name, model.name)
        known = {key[0] for key in self.layers}
        return label_of(model) if name not in known and label_of(model) in known else name

    def refusal(self, model: Transformer, gpu: str) -> str | None:
        """Reason why these are profiles of something else than `model` on `gpu`; None if they are its own."""
        name, holds = self.name_of(model), f"profiles of {self.dataset}"
        models, gpus = {key[0] for key in self.layers}, {key[1] for key in self.layers if key[0] == name}
        if name not in models and name == UNNAMED:
            return f"{holds} are those of {', '.join(sorted(models))}: name one in profile_model"
        if name not in models:
            return f"{holds} are those of {', '.join(sorted(models))}, none of which is {shown(name)}"
        if gpu not in gpus:
            return f"{holds} measured {name} on {', '.join(sorted(gpus))}, not on {gpu}"
        count = next(iter(self.layers[name, gpu].values())).forward_s.shape[1]
        if count > 1 and count - 1 - model.blocks not in NORM_AND_HEAD:
            return f"{holds} have {count} layers of {name}, which is not a model of {model.blocks} blocks"
        seq = self.seqs.get((name, gpu), model.seq)
        return None if seq == model.seq else f"{holds} ran {name} at seq {seq}, not at {model.seq}"

    def look(
        self, model: Transformer, domain: Domain, tp: int, micro_batch: int, mode: TensorMode = PLAIN
    ) -> Looked:
        """The profile of this width and micro-batch, or why there is none."""
        gpu = domain.gpu.name
        reason = self.refusal(model, gpu)
        if reason is not None:
            return Looked(None, reason)
        if mode.context_parallel > 1:
            return Looked(None, "profiles are measured without context parallelism")
        if model.adapters is not None:
            return Looked(None, "profiles are measured without adapters")
        if domain.gpu.limited:
            return Looked(None, "profiles are measured without limits of power or clock")
        if mode.expert_parallel > 1:
            return Looked(None, "profiles are measured without expert parallelism")
        widths, name = self.layers[self.name_of(model), gpu], f"{self.name_of(model)} on {gpu}"
        if tp not in widths:
            return Looked(None, f"{name} is not measured at tp {tp}, only at {_listed(widths)}")
        if tp > domain.gpus_per_node:
            return Looked(None, f"{name} is measured at tp {tp} inside a node, not over nodes")
        sizes = widths[tp].sizes
        if not sizes[0] <= micro_batch <= sizes[-1]:
            within = f"{sizes[0]:g} to {sizes[-1]:g}"
            return Looked(
                None, f"{name}, tp {tp} is measured at micro-batches {within}, not at {micro_batch}"
            )
        after = int(np.searchsorted(sizes, micro_batch))
        how = "measured" if sizes[after] == micro_batch else (
            f"between {sizes[after - 1]:g} and {sizes[after]:g}"
        )  # fmt: skip
        return Looked(widths[tp].at(micro_batch), f"{name}, tp {tp}, micro-batch {micro_batch} {how}")

    def update_s(self, model: Transformer, domain: Domain, tp: int, micro_batch: int) -> Float | None:
        """Seconds of the optimiser by layer (N,); None where it is not measured."""
        found = self.look(model, domain, tp, micro_batch).times
        if found is None or np.isnan(found[2]).any() or len(found[2]) == 1:
            return None
        return _of_model(found[2], model)

    def site(self, domain: Domain, keep_links: bool = False) -> Domain:
        """`domain` with the links inside its nodes that the data set's all-reduces show, unless given."""
        fit = self.links.get(domain.gpu.name)
        if fit is None or keep_links:
            return domain
        rate, start = fit.values["bandwidth_bps"], fit.values["alpha_s"]
        return replace(domain, intra_node_bps=rate, intra_node_latency_s=start)


def _listed(numbers: Mapping[int, Any]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))


def _of_model(seconds: Float, model: Transformer) -> Float:
    """Seconds of the N layers of `model`: the final norm belongs to its head; NaN where a block alone is
    known."""
    if len(seconds) == 1:
        return np.concatenate([[np.nan], np.repeat(seconds, model.blocks), [np.nan]])
    return np.concatenate([seconds[: model.blocks + 1], [seconds[model.blocks + 1 :].sum()]])


def load(
    store: Path, dataset: str, otherwise: ComputeModel = layer_times, names: Mapping[str, str] | None = None
) -> LakeProfiles:
    """Profiles of `dataset` in the lake of `store`.

    Raises:
        NotFoundError: it has no layer whose forward and backward are both timed.
    """
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(store) as connection:
        rows = connection.execute(_LAYERS, {"dataset": dataset}).fetchall()
    layers, seqs = tables(rows)
    if not layers:
        raise NotFoundError(
            f"the lake in {store} has no layer profile of {shown(dataset)} with forward and backward times: "
            "`twin datasets` lists what it holds, `twin ingest` adds to it"
        )
    mine = [row for row in profiles(store).collectives if row["dataset"] == dataset]
    links = {}
    for kind in {gpu for _, gpu in layers}:
        fit = dict(collective_fits(kind, mine)).get("intra-node all-reduce")
        if fit is not None and fit.better:
            links[kind] = fit
    whole = json.dumps([rows, [[row["ranks"], row["bytes"], row["time_s"]] for row in mine]])
    return LakeProfiles(
        dataset, hashlib.sha256(whole.encode()).hexdigest(), layers, seqs, links, otherwise, names or {}
    )


def tables(rows: Sequence[Sequence[Any]]) -> tuple[dict[Key, dict[int, Width]], dict[Key, int]]:
    """Widths by model and GPU, and tokens of a sequence where they are known, from rows (model, GPU, tp,
    micro-batch, layer, forward, backward, update, seq). A micro-batch without all layers is left out."""
    cells: dict[Key, dict[int, dict[int, dict[int, tuple[float, ...]]]]] = {}
    seqs: dict[Key, int] = {}
    for model, gpu, tp, size, layer, forward, backward, update, seq in rows:
        kind = model_of(gpu)
        if kind is None:
            continue
        number = 0 if layer == "block" else int(layer)
        times = forward, backward, np.nan if update is None else update
        cells.setdefault((model, kind), {}).setdefault(tp, {}).setdefault(size, {})[number] = times
        if seq is not None:
            seqs[model, kind] = seq
    found: dict[Key, dict[int, Width]] = {}
    for key, widths in cells.items():
        count = 1 + max(max(layers) for sizes in widths.values() for layers in sizes.values())
        for tp, sizes in widths.items():
            whole = sorted(size for size, layers in sizes.items() if len(layers) == count)
            if whole:
                every = np.array([[sizes[size][n] for n in range(count)] for size in whole])
                found.setdefault(key, {})[tp] = Width(np.array(whole, np.float64), *every.transpose(2, 0, 1))
    return found, seqs


def check(found: LakeProfiles, model: Transformer, domains: Sequence[Domain]) -> None:
    """Nothing, if the profiles are those of `model` on every domain.

    Raises:
        UsageError: they are those of another model or GPU.
    """
    for domain in domains:
        reason = found.refusal(model, domain.gpu.name)
        if reason is not None:
            raise UsageError(f"profiles: domain {domain.name}: {reason}; name the model by `profiles.model`")
