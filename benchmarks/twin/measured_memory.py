"""Measured memory as rows: peaks through `twin estimate`, stored activations of one block through
`twin.costs.memory`. Used by fidelity.py.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.twin.measured_runs import DataSet, Run, golden_memory, golden_mixtures_memory, h200_memory
from ingest.core.units import MIB
from twin.core.transformer import Transformer
from twin.costs import memory


@dataclass(frozen=True)
class Stored:
    """Bytes that one block keeps for its backward, measured; predicted without the rest of the model."""

    name: str
    model: Transformer
    tp: int
    micro_batch: int
    sequence_parallel: bool
    measured: float

    def predict(self) -> float:
        """`twin.costs.memory.block_activation_bytes`."""
        block = memory.block_activation_bytes(self.model, self.tp, "none", self.sequence_parallel)
        return self.micro_batch * block


# Shapes from profiles-sailor/configs and the models' cards; fp32 runs, no dropout in any of the figures.
SAILOR = {
    "OPT-350": (1024, 16, 16, 4096, False, 2048),
    "GPT-Neo-2.7": (2560, 20, 20, 10240, False, 2048),
    "OPT-30": (7168, 56, 56, 28672, False, 2048),
    "LLAMA-3-8": (4096, 32, 8, 14336, True, 8192),
}


def sailor(shared: Path) -> Iterator[Stored]:
    """Activations of one block and sample, fp32, scores written to memory, no sequence parallelism."""
    models = json.loads((shared / "traces/gpu/profiles-sailor/llm_info.json").read_text())
    for name, (hidden, heads, kv, ffn, gated, seq) in SAILOR.items():
        model = Transformer(
            name, 1, hidden, heads, kv, ffn, gated, seq, 50272, "fp32", attention="materialised"
        )
        for tp, layers in models[name].items():
            yield Stored(f"{name} tp{tp}", model, int(tp), 1, False, layers["1"]["act_mem_bytes"])


def h200(shared: Path) -> Iterator[Stored]:
    """Our own layer profile, which ships with the project: bf16, fused attention, no dropout."""
    path = Path(__file__).resolve().parents[2] / "traces/profile-nvidia-h200/layer_profiles.csv"
    for row in csv.DictReader(path.read_text().splitlines()):
        if row["activation_bytes"]:
            yield Stored(
                f"{row['model']} mbs{row['micro_batch']}", shape(row["model"]), 1, int(row["micro_batch"]),
                False, float(row["activation_bytes"]),
            )  # fmt: skip


def shape(label: str) -> Transformer:
    """The block that `twin profile` calls `label`."""
    found = re.fullmatch(r"(gpt|llama)-h(\d+)-a(\d+)-kv(\d+)-f(\d+)-s(\d+)", label)
    assert found is not None
    kind, *sizes = found.groups()
    h, a, kv, f, s = map(int, sizes)
    gpt = kind == "gpt"
    return Transformer(label, 1, h, a, kv, f, not gpt, s, 51200, bias=gpt, layer_norm=gpt)


GALVATRON = {"gpt": "50257", "llama": "32000"}
KEY = re.compile(r"layernum\[(\d+)\]_bsz(\d+)(?:_seq(\d+))?_rank0_ms")


def galvatron(shared: Path) -> Iterator[Run]:
    """Models of one and two layers on 8 GPUs, fully sharded: states and activation peak of rank 0."""
    return (run for run, _, _ in galvatron_files(shared))


def galvatron_files(shared: Path) -> Iterator[tuple[Run, float, float]]:
    """The same runs with MB of states and of the activation peak.

    Only layouts that the twin has: one stage; tensor groups with sequence parallelism and a split vocabulary.
    """
    folder = shared / "traces/gpu/profiles-galvatron"
    for path in sorted(folder.glob("*/memory_profiling_*.json")):
        family = path.parent.name.split("_")[0]
        sizes = re.search(r"hidden(\d+)_head(\d+)(?:_seqlen(\d+))?", path.name)
        if family not in GALVATRON or sizes is None:
            continue
        for layout, values in json.loads(path.read_text()).items():
            yield from _galvatron_rows(path.parent.name, family, sizes.groups(), layout, values)


def _galvatron_rows(
    folder: str, family: str, sizes: tuple[str | None, ...], layout: str, values: dict[str, float]
) -> Iterator[tuple[Run, float, float]]:
    split = re.fullmatch(r"1_(\d)_(\d)(_c)?(_vtp)?(_sp)?", layout)
    if split is None:
        return
    tp, dp, checkpointed, vocabulary, sequence_parallel = split.groups()
    if tp != "1" and not vocabulary:
        return
    for key, states in values.items():
        found = KEY.fullmatch(key)
        seq = (found and found[3]) or sizes[2]
        if not found or not seq:
            continue
        cells = {
            "gpu_model": "A100-80", "layers": found[1], "hidden": str(sizes[0]), "heads": str(sizes[1]),
            "vocab": GALVATRON[family], "seq": seq, "tp": tp, "dp": dp, "zero": "3", "attention": "flash",
            "micro_batch": str(int(found[2]) // int(dp)), "global_batch": found[2],
            "recompute": "full" if checkpointed else "none",
            "sequence_parallel": "yes" if sequence_parallel else "no",
        }  # fmt: skip
        if family == "llama":
            cells["ffn"] = "11008"
        peak = values[key.replace("_ms", "_act_peak")]
        name = f"{folder} h{sizes[0]} s{seq} l{found[1]} {layout}"
        yield Run(name, cells, "peak_mem_bytes", (states + peak) * MIB), states, peak


MEMORY_SETS = (
    DataSet(
        "Megatron golden runs: peak", golden_memory, "`max allocated` of the last rank, on the last stage.",
    ),
    DataSet(
        "Megatron golden runs, mixture of experts: peak", golden_mixtures_memory, "the last rank as "
        "well; the largest peak of all steps, that of the least even router.",
    ),
    DataSet("Galvatron: peak of 1 and 2 layers, fully sharded", galvatron, "model states + activation peak."),
    DataSet(
        "H200, our own iterations: peak", h200_memory, "with PyTorch's own cross entropy, which keeps some "
        "16 bytes a logit where Megatron's keeps 6, the peaks were 10 % higher than predicted.",
    ),
    DataSet(
        "Sailor: stored by one block", sailor, "fp32; no dropout (hypothesis); OPT's ReLU keeps less than "
        "the GELU assumed.",
    ),
    DataSet("H200: stored by one block", h200, "our own layer profile."),
)  # fmt: skip
