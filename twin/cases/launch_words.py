"""Cases from what other tools are started with: a command line of Megatron-LM, a configuration of DeepSpeed.

Only what a case has a column for is read; the rest (data, learning rates, logs) changes no estimate. Names:
Megatron-LM, `megatron/training/arguments.py`; DeepSpeed, `runtime/config.py`. What the words leave open, the
model of GPU above all, other cells say.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from ingest.core import text_files
from ingest.core.errors import InputError, UsageError
from ingest.core.terminal import clipped
from twin.cases import table_reader
from twin.cases.table_reader import Table

MOST_LAYERS = 10_000
"""Letters of a layout, at most."""
COUNTS = {
    "num-layers": "layers", "hidden-size": "hidden", "ffn-hidden-size": "ffn",
    "num-attention-heads": "heads", "num-query-groups": "kv_heads", "kv-channels": "head_dim",
    "seq-length": "seq", "vocab-size": "vocab", "tensor-model-parallel-size": "tp",
    "pipeline-model-parallel-size": "pp", "context-parallel-size": "context_parallel",
    "expert-model-parallel-size": "ep", "micro-batch-size": "micro_batch",
    "global-batch-size": "global_batch", "num-experts": "experts", "moe-router-topk": "top_k",
    "moe-ffn-hidden-size": "expert_ffn", "moe-shared-expert-intermediate-size": "shared_ffn",
    "kv-lora-rank": "kv_lora_rank", "q-lora-rank": "q_lora_rank", "qk-head-dim": "qk_nope_head_dim",
    "qk-pos-emb-head-dim": "qk_rope_head_dim", "v-head-dim": "v_head_dim",
}  # fmt: skip
"""Options whose number is the cell of a column."""
Options = Mapping[str, str]


def table(words: str | None, config: Path | None, also: Iterable[str]) -> Table:
    """Returns the one case of Megatron's words, else of DeepSpeed's configuration, with the cells `also`.

    Raises:
        UsageError, InputError: they are none.
    """
    if words is not None:
        return table_reader.one_row("--from-megatron", megatron(words), also)
    assert config is not None, "one of both is given"
    return table_reader.one_row(str(config), deepspeed(config), also)


def megatron(text: str) -> dict[str, str]:
    """Returns the cells of a case from a command line of Megatron-LM; words of torchrun before it say how
    many GPUs there are.

    Raises:
        UsageError: a value is none, or a layout that no column can hold.
    """
    given = _options(text)
    if "num-layers" not in given:
        raise UsageError("--from-megatron: no --num-layers; give the arguments of pretrain_gpt.py")
    found = {column: str(_count(given, name)) for name, column in COUNTS.items() if name in given}
    if "nnodes" in given and "nproc-per-node" in given:
        found["gpus"] = str(_count(given, "nnodes") * _count(given, "nproc-per-node"))
    if "swiglu" in given and "ffn" not in found and "hidden" in found:
        found["ffn"] = str(int(int(found["hidden"]) * 4 * 2 / 3 / 64) * 64)  # Megatron's own default
    found["dtype"] = next((kind for kind in ("bf16", "fp16") if kind in given), "fp32")
    if "fp8-format" in given:
        found["dtype"] = "fp8"
    found["recompute"] = given.get("recompute-granularity", "none")
    found["zero"] = "1" if "use-distributed-optimizer" in given else "0"
    found["sequence_parallel"] = _yes("sequence-parallel" in given)
    found["tp_overlap"] = _yes("tp-comm-overlap" in given)
    found["overlap_reduction"] = _yes("overlap-grad-reduce" in given)
    backend = given.get("attention-backend")
    if backend in ("flash", "unfused"):
        found["attention"] = "flash" if backend == "flash" else "materialised"
    return found | _stages(given, int(found.get("pp", "1")))


def deepspeed(path: Path) -> dict[str, str]:
    """Returns the cells of a case that a configuration of DeepSpeed has: batch, precision, ZeRO, stages.

    Raises:
        InputError: the file is no JSON object. UsageError: it has no sizes of batches.
    """
    try:
        given: Any = orjson.loads(text_files.read(path, InputError))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: is not JSON ({error})") from None
    if not isinstance(given, dict):
        raise InputError(f"{path}: is no configuration of DeepSpeed, which is a JSON object")
    micro, batch = given.get("train_micro_batch_size_per_gpu"), given.get("train_batch_size")
    steps = given.get("gradient_accumulation_steps", 1)
    if not all(isinstance(one, int) and one > 0 for one in (micro, batch, steps)):
        raise UsageError(
            f"{path}: train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps are "
            'whole numbers; "auto" is filled in by another program: put the numbers there'
        )
    found = {"micro_batch": str(micro), "global_batch": str(batch), "micro_batches": str(steps)}
    found["dp"] = str(max(1, batch // (micro * steps)))
    found["dtype"] = next((kind for kind in ("bf16", "fp16") if _part(given, kind).get("enabled")), "fp32")
    found["zero"] = str(_part(given, "zero_optimization").get("stage", 0))
    stages = _part(given, "pipeline").get("stages")
    if isinstance(stages, int):
        found["pp"] = str(stages)
    return found


def _part(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = given.get(name, {})
    return part if isinstance(part, dict) else {}


def _options(text: str) -> dict[str, str]:
    """Returns the options of a command line with the word behind each, "" where there is none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--from-megatron: {error} in the command line; close the quotes") from None
    found: dict[str, str] = {}
    for n, word in enumerate(words):
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            behind = words[n + 1] if n + 1 < len(words) and not words[n + 1].startswith("--") else ""
            found[name.replace("_", "-")] = value or behind
    return found


def _count(given: Options, name: str) -> int:
    if not given[name].isdecimal() or len(given[name]) > 9:
        raise UsageError(f"--from-megatron: --{name} {clipped(given[name])} is no whole number")
    return int(given[name])


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _stages(given: Options, stages: int) -> dict[str, str]:
    """Returns schedule, chunks and cuts."""
    parts = (
        layout(given["pipeline-model-parallel-layout"]) if "pipeline-model-parallel-layout" in given else []
    )
    if len(parts) % stages:
        raise UsageError(f"--from-megatron: a layout of {len(parts)} parts is none of {stages} stages")
    chunks = len(parts) // stages or _virtual(given, stages)
    if chunks == 1:
        return {"cuts": "-".join(map(str, parts))} if parts else {}
    held = [sum(parts[stage::stages]) for stage in range(stages)]
    found = {"schedule": "interleaved", "chunks": str(chunks)}
    found["p2p"] = "blocking" if "no-overlap-p2p-communication" in given else "overlapped"
    return found | ({"cuts": "-".join(map(str, held))} if parts else {})


def _virtual(given: Options, stages: int) -> int:
    """Returns the chunks of a stage that options other than a layout ask for."""
    if "num-virtual-stages-per-pipeline-rank" in given:
        return _count(given, "num-virtual-stages-per-pipeline-rank")
    if "num-layers-per-virtual-pipeline-stage" in given:
        return max(
            1, _count(given, "num-layers") // stages // _count(given, "num-layers-per-virtual-pipeline-stage")
        )
    return 1


def layout(text: str) -> list[int]:
    """Returns the layers of each part of a layout such as `Et*3|(tt|)*29,m|L`, embedding and head counted.

    Raises:
        UsageError: it is no layout.
    """
    plain = text.replace(",", "")
    for pattern in (r"\(([^()]+)\)\*(\d{1,4})", r"(.)\*(\d{1,4})"):
        plain = re.sub(pattern, lambda found: found[1] * int(found[2]), plain)
        if len(plain) > MOST_LAYERS:
            raise UsageError(f"--from-megatron: a layout of more than {MOST_LAYERS} layers")
    if re.fullmatch(r"[EtmL|]+", plain) is None or "m" in plain:
        raise UsageError(
            f"--from-megatron: the layout {clipped(text)} is not of E, t, L and |; layers that predict "
            "further tokens (m) have no cost model"
        )
    return [len(part) for part in plain.split("|")]
