"""Measured iterations as rows of `twin estimate`: cells, and what was measured. Used by fidelity.py.

Each reader takes the folder of the measurements (../shared) and yields one `Run` a row. A cell that the
source does not state is a hypothesis and named as one in the data set's `note`.
"""

import csv
import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twin.cases import table_reader
from twin.cases.answer import allocator_bytes, answer, explain
from twin.cases.resolve import resolve

Cells = dict[str, str]


@dataclass(frozen=True)
class Run:
    """One measured figure: `figure` is a column of the answer, `cells` the question."""

    name: str
    cells: Cells
    figure: str
    measured: float

    def predict(self) -> float:
        """What `twin estimate` answers; `last_stage_mem_bytes`: its peak on the last stage."""
        if self.figure == "last_stage_mem_bytes":
            case = resolve(table_reader.parse(self.cells))
            return allocator_bytes(case, explain(case).peak_bytes)[-1]
        return float(getattr(answer(resolve(table_reader.parse(self.cells))), self.figure))


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))


def vtrain(shared: Path) -> Iterator[Run]:
    """1-8 A100 of one node; Megatron-DeepSpeed, full recomputation, 1F1B, fp16."""
    for row in table(shared / "validation" / "vtrain_ground_truth_single.csv"):
        cells = {
            "gpu_model": "A100-80", "gpus": row["# GPUs"], "layers": row["# layers"],
            "hidden": row["hidden size"], "heads": row["attention heads"], "seq": row["sequence length"],
            "vocab": "50304", "dtype": "fp16", "tp": row["tensor parallelism"],
            "pp": row["pipeline parallelism"], "dp": row["data parallelism"],
            "micro_batch": row["micro batch"], "global_batch": row["global batch"], "recompute": "full",
        }  # fmt: skip
        name = (
            f"tp{cells['tp']} pp{cells['pp']} dp{cells['dp']} h{cells['hidden']} l{cells['layers']} "
            f"mbs{cells['micro_batch']} gbs{cells['global_batch']}"
        )
        yield Run(name, cells, "iter_s", float(row["iteration time (ms)"]) / 1e3)


def vtrain_nodes(shared: Path) -> Iterator[Run]:
    """64 and 512 A100; the same set-up over nodes of 8, 800 Gb/s between them; tp up to 32 reaches over
    nodes."""
    for row in table(shared / "validation" / "vtrain_ground_truth_multi_part.csv"):
        cells = {
            "gpu_model": "A100-80", "gpus": row["# GPUs"], "layers": row["# layers"],
            "hidden": row["hidden size"], "heads": row["attention heads"], "seq": row["sequence length"],
            "vocab": "50304", "dtype": "fp16", "tp": row["tensor parallelism"],
            "pp": row["pipeline parallelism"], "dp": row["data parallelism"],
            "micro_batch": row["micro batch"], "global_batch": row["global batch"], "recompute": "full",
            "inter_node_bps": "100e9",
        }  # fmt: skip
        name = (
            f"tp{cells['tp']} pp{cells['pp']} dp{cells['dp']} gpus{cells['gpus']} mbs{cells['micro_batch']}"
        )
        yield Run(name, cells, "iter_s", float(row["iteration time (ms)"]) / 1e3)


SC21_MICRO_BATCH = {
    "1.7B": 16, "3.6B": 16, "7.5B": 16, "18B": 8, "39B": 4, "76B": 2,
    "145B": 2, "310B": 1, "530B": 1, "1T": 1,
}  # fmt: skip
"""NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh."""
SC21_CHUNKS = {"76B": 3, "145B": 2, "310B": 2, "530B": 3}
"""The same script: layers of a stage over --num-layers-per-virtual-pipeline-stage; the others run 1F1B."""


def sc21(shared: Path) -> Iterator[Run]:
    """Weak scaling to 3,072 A100 (Narayanan et al., SC 2021, table 1)."""
    for row in table(shared / "validation" / "megatron_sc21_weak_scaling.csv"):
        cells = {
            "gpu_model": "A100-80", "gpus": row["gpus"], "layers": row["layers"], "hidden": row["hidden"],
            "heads": row["heads"], "seq": row["seq_len"], "vocab": row["vocab"], "dtype": "fp16",
            "tp": row["tp_derived"], "pp": row["pp_derived"], "dp": row["dp_derived"],
            "micro_batch": str(SC21_MICRO_BATCH[row["case"].split()[0]]), "global_batch": row["global_batch"],
        }  # fmt: skip
        chunks = SC21_CHUNKS.get(row["case"].split()[0], 1)
        if chunks > 1:  # Megatron of 2021 waited for every send
            cells |= {"schedule": "interleaved", "chunks": str(chunks), "p2p": "blocking"}
        yield Run(row["case"], cells, "iter_s", float(row["derived_iter_s_formula_96BsLh2"]))


SEQPAR = {
    "22B": ("8", "48", "6144", "64", "1", "4", "4"),
    "175B": ("64", "96", "12288", "96", "3", "1", "64"),
    "530B": ("280", "105", "20480", "128", "3", "1", "280"),
    "1T": ("512", "128", "25600", "160", "1", "1", "512"),
}
"""GPUs, layers, hidden, heads, chunks, micro-batch, global batch (Korthikanti et al. 2022, table 3); tp 8."""


def seqpar(shared: Path) -> Iterator[Run]:
    """Sequence parallelism and selective recompute on 8 to 512 A100: time from the printed MFU."""
    for row in table(shared / "validation" / "megatron_seqpar_mfu.csv"):
        gpus, layers, hidden, heads, chunks, micro_batch, batch = SEQPAR[row["model"]]
        cells = {
            "gpu_model": "A100-80", "gpus": gpus, "layers": layers, "hidden": hidden, "heads": heads,
            "dtype": "fp16", "tp": "8", "pp": str(int(gpus) // 8), "micro_batch": micro_batch,
            "global_batch": batch, "recompute": "selective", "sequence_parallel": "yes",
        }  # fmt: skip
        if chunks != "1":
            cells |= {"schedule": "interleaved", "chunks": chunks, "p2p": "blocking"}
        case = resolve(table_reader.parse(cells))
        assert case.model is not None
        done = case.model.flops_per_sequence * case.global_batch
        rate = float(row["mfu_pct"]) / 100 * case.gpus * case.site.gpu.peak_flops
        yield Run(row["model"], cells, "iter_s", done / rate)


def megatron_2020(shared: Path) -> Iterator[Run]:
    """V100 and A100, 1 to 128 data-parallel replicas: one micro-batch per replica."""
    for row in table(shared / "validation" / "megatron_2020_dp_scaling.csv"):
        tp, gpus, batch = int(row["model_parallel"]), int(row["gpus"]), int(row["global_batch"])
        cells = {
            "gpu_model": "V100-32" if "V100" in row["cluster"] else "A100-40", "gpus": row["gpus"],
            "layers": row["layers"], "hidden": row["hidden"], "heads": row["heads"], "seq": "1024",
            "vocab": "51200", "dtype": "fp16", "tp": str(tp), "micro_batch": str(batch * tp // gpus),
            "global_batch": str(batch),
        }  # fmt: skip
        yield Run(f"{row['cluster']} {row['case']}", cells, "iter_s", float(row["iter_ms"]) / 1e3)


GOLDEN = "traces/gpu/profiles-megatron-golden"
NEMOTRON_15B = {
    "gpus": "256", "layers": "32", "hidden": "6144", "heads": "48", "kv_heads": "8", "ffn": "24576",
    "vocab": "256000", "seq": "4096", "dtype": "bf16", "tp": "8", "micro_batch": "4", "global_batch": "384",
    "recompute": "none", "zero": "1", "sequence_parallel": "yes",
}  # fmt: skip
BERT_LARGE = {
    "layers": "24", "hidden": "1024", "heads": "16", "vocab": "30592", "seq": "512", "dtype": "fp16",
    "tp": "8", "pp": "8", "dp": "1", "micro_batch": "4", "global_batch": "32", "recompute": "none",
    "attention": "materialised",
}  # fmt: skip
MACHINES = {
    "golden_values_dev_dgx_h100.json": "H100",
    "golden_values_lts_dgx_a100.json": "A100-80",
    "golden_values_dev_dgx_gb200.json": "GB200",
}


MIXTRAL = {
    "gpus": "128", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336",
    "vocab": "256000", "seq": "4096", "dtype": "bf16", "tp": "2", "pp": "4", "ep": "4", "experts": "8",
    "top_k": "2", "micro_batch": "1", "global_batch": "1024", "recompute": "none", "zero": "1",
    "framework": "megatron-core",
}  # fmt: skip
DENSE = {"gpt3_15b_8t_release_sm": NEMOTRON_15B, "bert_release_sm": BERT_LARGE}
MIXTURES = {"mixtral_8x7b_alltoall_tp2pp4ep4_release": MIXTRAL}


def _golden(shared: Path, figure: str, key: str, cases: Mapping[str, Cells] = DENSE) -> Iterator[Run]:
    for case, cells in cases.items():
        for file, gpu in MACHINES.items():
            path = shared / GOLDEN / case / file
            if not path.is_file():
                continue
            values = json.loads(path.read_text())[key]["values"].values()
            timed = [float(value) for value in values if value != "nan"]
            measured = statistics.median(timed) if figure == "iter_s" else max(timed)
            yield Run(f"{case} {gpu}", {"gpu_model": gpu, **cells}, figure, measured)


def golden(shared: Path) -> Iterator[Run]:
    """Megatron-LM's regression records, dense models; median of the timed steps."""
    return _golden(shared, "iter_s", "iteration-time")


def golden_memory(shared: Path) -> Iterator[Run]:
    """The same runs: the allocator's peak on the last rank, whose TensorBoard writer logs it
    (`_set_tensorboard_writer` in megatron/training/global_vars.py)."""
    return _golden(shared, "last_stage_mem_bytes", "mem-max-allocated-bytes")


def golden_mixtures(shared: Path) -> Iterator[Run]:
    """The same records of mixtures of experts."""
    return _golden(shared, "iter_s", "iteration-time", MIXTURES)


def golden_mixtures_memory(shared: Path) -> Iterator[Run]:
    """Peaks of these."""
    return _golden(shared, "last_stage_mem_bytes", "mem-max-allocated-bytes", MIXTURES)


GPT3_FP8 = {
    "gpu_model": "H100", "layers": "96", "hidden": "12288", "heads": "96", "vocab": "51200", "seq": "2048",
    "dtype": "fp8", "recompute": "none", "zero": "1", "sequence_parallel": "yes",
    "gradient_dtype": "bf16", "bucket_bytes": "200e6", "tp_overlap": "yes",
}  # fmt: skip


def mlperf(shared: Path) -> Iterator[Run]:
    """GPT-3 175B of MLPerf Training 4.0: blocks of steps of two runs, step times of a third."""
    folder = shared / "traces" / "gpu"
    parallel = {"tp": "4", "pp": "8", "chunks": "12", "micro_batch": "2"}
    yield Run(
        "NVIDIA 512 H100", {**GPT3_FP8, **parallel, "gpus": "512", "global_batch": "2304"}, "iter_s",
        _block_step_s(folder / "profiles-mlperf-gpt3-scaling" / "eos_n64_result_0.txt", 2304),
    )  # fmt: skip
    yield Run(
        "NVIDIA 10,752 H100",
        {
            **GPT3_FP8, "tp": "4", "pp": "6", "chunks": "8", "micro_batch": "1", "gpus": "10752",
            "global_batch": "2688",
        },
        "iter_s",
        _block_step_s(folder / "profiles-mlperf-gpt3-scaling" / "eos-dfw_n1344_result_0.txt", 2688),
    )  # fmt: skip
    (log,) = (folder / "telemetry-mlperf-smc-h100" / "gpt3_64nodes").glob("result*.txt")
    steps = [float(t) for t in re.findall(r'"train_step_timing in s": ([0-9.]+)', log.read_text())]
    yield Run(
        "SMC 512 H100", {**GPT3_FP8, **parallel, "gpus": "512", "global_batch": "2048"}, "iter_s",
        statistics.median(steps),
    )  # fmt: skip


def _block_step_s(path: Path, batch: int) -> float:
    """Median step of a log that has only blocks: (stop - start) / (tokens / 2,048 / batch)."""
    open_block: tuple[float, float] | None = None
    found = []
    for line in path.read_text().splitlines():
        if ":::MLLOG" not in line:
            continue
        record = json.loads(line.split(":::MLLOG", 1)[1])
        if record["key"] == "block_start":
            open_block = record["time_ms"], float(record["metadata"]["epoch_count"])
        elif record["key"] == "block_stop" and open_block:
            found.append((record["time_ms"] - open_block[0]) / 1e3 / (open_block[1] / 2048 / batch))
            open_block = None
    return statistics.median(found)


PERSEUS = {
    "A100_dp1+pp4+tp1_bert-huge-uncased_0": 32,
    "A100_dp1+pp4+tp1_t5-3b_0": 32,
    "A100_dp1+pp4+tp1_gpt3-xl_0": 128,
    "A100_dp1+pp4+tp1_bloom-3b_0": 128,
    "A40_dp1+pp8+tp1_gpt3-2.7b_0": 256,
}


def perseus(shared: Path) -> Iterator[Run]:
    """Pipelines of 4 A100 PCIe and 8 A40: measured stage times in, whole iteration out."""
    return _perseus(
        shared, "iter_s", lambda ranks: statistics.median(t for r in ranks for t in r["iter_time"][1:])
    )


def perseus_energy(shared: Path) -> Iterator[Run]:
    """The same pipelines: joules of all GPUs in one iteration."""
    return _perseus(
        shared, "energy_j", lambda ranks: sum(statistics.median(r["iter_energy"][1:]) for r in ranks)
    )


def _perseus(shared: Path, figure: str, measure: Callable[[list[Any]], float]) -> Iterator[Run]:
    folder = shared / "traces" / "gpu" / "profiles-perseus" / "measured_iterations"
    for name, micro_batches in PERSEUS.items():
        ranks = json.loads((folder / f"{name}.prof.json").read_text())
        times = {
            kind: ";".join(str(_median(rank["time_breakdown"][kind][1:])) for rank in ranks)
            for kind in ("forward", "backward")
        }
        cells = {
            "gpu_model": "A40" if name.startswith("A40") else "A100-PCIE-80",
            "micro_batches": str(micro_batches), "pp": str(len(ranks)),
            "stage_forward_s": times["forward"], "stage_backward_s": times["backward"],
        }  # fmt: skip
        yield Run(name.removesuffix("_0"), cells, figure, measure(ranks))


@dataclass(frozen=True)
class Limited(Run):
    """A figure under a power limit, predicted from the one without: `alone` was measured without limit."""

    alone: float = 0.0

    def predict(self) -> float:
        """What `alone` becomes by the ratio of two answers."""
        without = {name: cell for name, cell in self.cells.items() if name != "power_cap_w"}
        return super().predict() / replace(self, cells=without)._answered() * self.alone

    def _answered(self) -> float:
        return super().predict()


LIMITED = {
    "gpt3-xl": {"layers": "24", "hidden": "2048", "heads": "16", "vocab": "50304", "micro_batch": "8"},
    "bloom-3b": {"layers": "30", "hidden": "2560", "heads": "32", "vocab": "250880", "micro_batch": "4"},
}
"""The decoders among the models (GPT-3: Brown et al. 2020; Bloom-3B: BigScience's config.json)."""


def power_limits(shared: Path) -> Iterator[Run]:
    """Iterations of four A100 PCIe under limits of 175 to 275 W, from that at 300 W."""
    return _power_limits(shared, "iter_s", "time")


def power_limits_energy(shared: Path) -> Iterator[Run]:
    """Joules of the same iterations."""
    return _power_limits(shared, "energy_j", "energy")


def _power_limits(shared: Path, figure: str, column: str) -> Iterator[Run]:
    folder = shared / "traces" / "gpu" / "profiles-perseus" / "iteration_time_energy_vs_power_limit"
    rows = [row for row in table(folder / "A100_zeus_global.csv") if row["model_name"] in LIMITED]
    alone = {row["model_name"]: float(row[column]) for row in rows if row["power_limit_0"] == "300"}
    for row in rows:
        name, watts = row["model_name"], row["power_limit_0"]
        if watts == "300":
            continue
        cells = {
            **LIMITED[name], "gpu_model": "A100-PCIE-80", "pp": "4", "micro_batches": row["num_microbatches"],
            "dtype": "bf16", "recompute": "full", "power_cap_w": watts,
        }  # fmt: skip
        yield Limited(f"{name} {watts} W", cells, figure, float(row[column]), alone[name])


def _median(iterations: list[list[float]]) -> float:
    return statistics.median(t for times in iterations for t in times)


def bytedance(shared: Path) -> Iterator[Run]:
    """Two production jobs: mean compute times of the slowest pipeline in, median step out."""
    import duckdb

    folder = shared / "traces" / "gpu" / "profiles-bytedance-training-trace"
    for job, micro_batches in (("ST", 4), ("AR", 32)):
        path = folder / f"trace-{job}.parquet"
        rows = duckdb.sql(
            "SELECT dp_rank, stage, avg(duration) FILTER (optype = 'forward-compute'), "
            "avg(duration) FILTER (optype = 'backward-compute') "
            f"FROM '{path}' GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        pipelines: dict[int, list[tuple[float, float]]] = {}
        for rank, _, forward, backward in rows:
            pipelines.setdefault(rank, []).append((forward, backward))
        slowest = max(pipelines.values(), key=lambda stages: max(f + b for f, b in stages))
        measured = duckdb.sql(
            "SELECT median(length) FROM (SELECT step, max(start_ts + duration) - min(start_ts) AS length "
            f"FROM '{path}' GROUP BY step)"
        ).fetchall()[0][0]
        cells = {
            "gpu_model": "A100-80", "pp": str(len(slowest)), "micro_batches": str(micro_batches),
            "stage_forward_s": ";".join(str(f) for f, _ in slowest),
            "stage_backward_s": ";".join(str(b) for _, b in slowest),
        }  # fmt: skip
        yield Run(f"ByteDance {job}", cells, "iter_s", measured)


H100_3B = {
    "gpu_model": "H100", "layers": "28", "hidden": "3072", "heads": "24", "vocab": "32000", "seq": "2048",
    "dtype": "bf16", "micro_batch": "4", "recompute": "none", "framework": "pytorch",
}  # fmt: skip


def dcgm_h100(shared: Path) -> Iterator[Run]:
    """Two data-parallel runs of a 3.37 B model, from the step counts that SOURCES.md states."""
    yield Run(
        "8 GPUs, 16 accumulation steps", {**H100_3B, "gpus": "8", "global_batch": "512"}, "iter_s", 306 / 52
    )
    yield Run("16 GPUs", {**H100_3B, "gpus": "16", "global_batch": "64"}, "iter_s", 306 / 689)


def _h200(figure: str, measured: Callable[[dict[str, str]], float]) -> Iterator[Run]:
    path = Path(__file__).resolve().parent / "iterations_h200.csv"
    for row in table(path):
        cells = {name: cell for name, cell in row.items() if not name.startswith("measured_")}
        name = (
            f"{'gpt' if int(row['ffn']) == 4 * int(row['hidden']) else 'llama'} h{row['hidden']} "
            f"l{row['layers']} s{row['seq']} mbs{row['micro_batch']} m{row['micro_batches']} "
            f"{row['recompute']}"
        )
        yield Run(name, cells, figure, measured(row))


def h200(shared: Path) -> Iterator[Run]:
    """Whole iterations on one H200, recorded by benchmarks/twin/iterations.py."""
    return _h200("iter_s", lambda row: float(row["measured_iter_s"]))


def h200_memory(shared: Path) -> Iterator[Run]:
    """The same runs: the allocator's peak."""
    return _h200("peak_mem_bytes", lambda row: float(row["measured_peak_bytes"]))


def h200_energy(shared: Path) -> Iterator[Run]:
    """The same runs: mean power of the board times the iteration."""
    return _h200("energy_j", lambda row: float(row["measured_power_w"]) * float(row["measured_iter_s"]))


@dataclass(frozen=True)
class DataSet:
    """A reader, what its rows are called, and what was assumed; `calibrated_every`: rows that set
    constants."""

    title: str
    read: Callable[[Path], Iterator[Run]]
    note: str
    calibrated_every: int = 0


DATA_SETS = (
    DataSet(
        "vTrain, 1-8 A100", vtrain, "rows 0, 10, 20, ... set the three numbers of "
        "`twin.costs.gpu_rates.Host` and the interval; the others judge. "
        "Vocabulary padded to 50,304 (hypothesis).", 10,
    ),
    DataSet(
        "vTrain, 64 and 512 A100", vtrain_nodes, "the same set-up over nodes; 800 Gb/s a node is the "
        "authors' figure, an eighth of it the adapter of a GPU. Nothing is fitted to these rows.",
    ),
    DataSet(
        "Megatron SC'21, 32-3,072 A100", sc21, "micro-batch sizes and chunks of the published scripts; "
        "time derived from the printed TFLOP/s. The interleaved rows (76B, 145B, 310B, 530B) were +0, +4, +1 "
        "and +4 % as plain 1F1B, which hid that the model is a little fast at that size.",
    ),
    DataSet(
        "Megatron 2022, sequence parallel", seqpar, "shapes of table 3 of the paper (arXiv 2205.05198), time "
        "derived from the printed MFU; sends wait as in 2021 (hypothesis). Nothing is fitted to these rows.",
    ),
    DataSet("Megatron 2020, V100 and A100", megatron_2020, "one micro-batch per replica."),
    DataSet(
        "Megatron golden runs", golden, "the number of GPUs is not recorded: 256 for the 15 B model is a "
        "hypothesis (dp 32 is the largest power of two that divides the batch; with 16 the A100 would exceed "
        "its peak); BERT is taken for a decoder of the same shape.",
    ),
    DataSet(
        "Megatron golden runs, mixture of experts", golden_mixtures,
        "Mixtral 8x7B; 128 GPUs are a hypothesis that the bytes between iterations bear out (17.35e9 of "
        "states predicted, 17.70e9 recorded). The router is taken to be even, since the record does not "
        "say; with `expert_imbalance` 1.3 the errors are -5 and -2 %, those of the peaks +1 and 0 %. The "
        "proxy of DeepSeek-V3 has multi-latent attention, of which there is no model.",
    ),
    DataSet(
        "MLPerf GPT-3 175B", mlperf, "parallel sizes, sequence parallelism, overlapped tensor-parallel "
        "collectives, bf16 gradients and buckets of 200 MB are in the log of the SMC run; NVIDIA's 512 GPUs "
        "are taken to have the same (hypothesis). NVIDIA's configuration for 1,344 nodes: tp 4, pp 6, "
        "micro-batch 1, 8 chunks a stage.",
    ),
    DataSet(
        "H100, PyTorch data parallel", dcgm_h100, "vocabulary from the parameter count, no recompute "
        "(hypotheses).",
    ),
    DataSet(
        "H200, our own iterations", h200, "one GPU, recorded after the predictions were written down; "
        "nothing is fitted to it. An earlier recording under autocast (norms in fp32 and not fused) was "
        "11.6 % off in time.",
    ),
    DataSet(
        "Perseus, measured stage times", perseus, "the schedule alone is judged; stage times are medians "
        "over micro-batches and contain some waiting.",
    ),
    DataSet(
        "ByteDance, measured stage times", bytedance, "the schedule alone is judged, gradient reduction and "
        "update are not in the prediction.",
    ),
)  # fmt: skip
ENERGY_SETS = (
    DataSet("H200, our own iterations, energy", h200_energy, "power of the board, each 100 ms."),
    DataSet(
        "Perseus, energy", perseus_energy, "A100 PCIe of 300 W and A40; power of a busy and of a waiting "
        "GPU as in `twin/costs/energy.py`, from H100 telemetry.",
    ),
)  # fmt: skip
POWER_SETS = (
    DataSet(
        "Perseus, under a power limit", power_limits, "A100 PCIe, whose own limit is 300 W: the time "
        "measured at 300 W times the ratio of two answers. The curve of power over clock was fitted to an "
        "A40; sequences of 2,048 tokens (hypothesis).",
    ),
    DataSet("Perseus, energy under a power limit", power_limits_energy, "the same runs."),
)  # fmt: skip
