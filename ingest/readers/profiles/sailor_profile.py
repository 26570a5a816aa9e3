"""Layer profiles as Sailor keeps them in JSON: times of each layer, and sizes of each layer.

`MODEL/GPU/profile.json` is `{micro-batch: {tp: {layer: [forward_s, backward_s, update_s]}}}`; one file of
many models puts `{model: {gpu: ...}}` around it; `llm_info.json` is `{model: {tp: {layer: {params_bytes,
act_mem_bytes, ...}}}}` for one sample. A row is one layer; `source_row` counts them from 1. Layer 0 is the
embedding, the last ones are the final norm and the head.

A model of a known number of layers that has another number is rejected: those are the numbers of some
other model.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, folder, from_document
from ingest.parsing.source import BOM, Source

_TABLE = "layer_profiles"
_TIMES = re.compile(
    rb'\{\s*(?:"[^"]{1,80}"\s*:\s*\{\s*"[^"]{1,80}"\s*:\s*\{\s*)?"\d+"\s*:\s*\{\s*"\d+"\s*:\s*\{\s*"\d+"\s*:\s*\['
)
_SIZES = re.compile(rb'\{\s*"[^"]{1,80}"\s*:\s*\{\s*"\d+"\s*:\s*\{\s*"\d+"\s*:\s*\{\s*"params_')
LAYERS = {"OPT-350": 26, "GPT-Neo-2.7": 34, "OPT-30": 50, "LLAMA-3-8": 35}
"""Embedding, blocks, norm and head of each model, as its training configuration (`num_all_layers`) says."""


class SailorProfile:
    """Times and sizes of layers."""

    name = "sailor-profile"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True if the document begins with a layer inside tp inside micro-batch, or with a layer's sizes."""
        start = head.removeprefix(BOM).lstrip()
        return bool(_TIMES.match(start) or _SIZES.match(start))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each layer, micro-batch and tp."""

        def made(document: Any) -> Iterator[RowBatch]:
            if _SIZES.match(source.head.lstrip()):
                yield _sizes(document)
            elif all(key.isdigit() for key in document):
                yield _times({folder(source, options, 2): {folder(source, options): document}})
            else:
                yield _times(document)

        return from_document(source, _TABLE, made)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "sailor-profile: model and GPU of a profile.json are the two folders it lies in",
            "sailor-profile: the times include the tensor-parallel collectives inside a node",
            "sailor-profile: layer sizes are for one sample, hence micro_batch 1",
        )


def _times(document: dict[Any, Any]) -> RowBatch:
    names = ("model", "gpu_model", "micro_batch", "tp", "layer", "forward_s", "backward_s", "update_s")
    rows = RowBuilder(_TABLE, names)
    for model, gpus in document.items():
        for gpu, batches in gpus.items():
            for micro_batch, splits in batches.items():
                for tp, layers in splits.items():
                    wrong = _wrong(model, layers)
                    for layer, times in layers.items():
                        number = len(rows) + 1
                        if wrong:
                            rows.reject(number, "layer", layer, wrong)
                        else:
                            key = (model, gpu, micro_batch, tp, layer)
                            rows.take(number, "layer", times, _timed, *key, times)
    return rows.batch()


def _timed(model: str, gpu: str, micro_batch: str, tp: str, layer: str, times: Any) -> tuple[Any, ...]:
    forward, backward, update = times
    measured = amount(forward), amount(backward), amount(update)  # s
    return model, gpu, whole(micro_batch), whole(tp), layer, *measured


def _sizes(document: dict[str, Any]) -> RowBatch:
    rows = RowBuilder(_TABLE, ("model", "tp", "layer", "param_bytes", "activation_bytes"), micro_batch=1)
    for model, splits in document.items():
        for tp, layers in splits.items():
            for layer, sizes in layers.items():
                rows.take(len(rows) + 1, "layer", sizes, _sized, model, tp, layer, sizes)
    return rows.batch()


def _sized(model: str, tp: str, layer: str, sizes: Any) -> tuple[Any, ...]:
    return model, whole(tp), layer, whole(sizes["params_bytes"]), whole(sizes["act_mem_bytes"])


def _wrong(model: Any, layers: Any) -> str | None:
    """Reason why these cannot be the layers of the model."""
    if model not in LAYERS or len(layers) == LAYERS[model]:
        return None
    others = [name for name, count in LAYERS.items() if count == len(layers)]
    of = f"; that is the number of {others[0]}" if others else ""
    return f"{len(layers)} layers, but {model} has {LAYERS[model]}{of}"
