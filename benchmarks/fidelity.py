"""Predicted against measured iteration times, row by row: python benchmarks/fidelity.py [--rows]

Reads the measured tables beside the repository (../shared/validation) and says so when they are absent.
Nothing in `twin` is fitted to these rows; the constants in use are those of `twin.compute`, from operator
profiles.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twin.domain import Cluster, Domain, LinkState
from twin.estimate import Estimator
from twin.gpu import fabric, preset
from twin.job import JobSpec
from twin.transformer import classic

VALIDATION = Path(__file__).resolve().parents[1].parent / "shared" / "validation"


@dataclass(frozen=True)
class Case:
    """One measured run: a GPT of the classic form on one site."""

    name: str
    gpu: str
    layers: int
    hidden: int
    heads: int
    seq: int
    vocab: int
    tp: int
    pp: int
    dp: int
    micro_batch: int
    global_batch: int
    measured_s: float

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers per stage as Megatron splits: equal blocks, the embedding in front, the head behind."""
        blocks = [self.layers // self.pp] * self.pp
        blocks[0] += 1
        blocks[-1] += 1
        return tuple(blocks)

    def predict_s(self) -> float:
        """Each stage is a domain of tp*dp GPUs; the link between two is the sum of their GPUs' ports."""
        kind, gpus = fabric(self.gpu), self.tp * self.dp
        one_node = gpus * self.pp <= kind.gpus_per_node
        site = Domain(
            "stage", preset(self.gpu), gpus, kind.gpus_per_node, kind.intra_node_bps, kind.inter_node_bps,
            kind.intra_node_latency_s, kind.inter_node_latency_s, 0.0,
        )  # fmt: skip
        model = classic(self.name, self.layers, self.hidden, self.heads, self.seq, self.vocab, "fp16")
        job = JobSpec(model, self.global_batch, (self.micro_batch,), recompute="full")
        prices = tuple((0.0,) * self.pp for _ in range(self.pp))
        estimator = Estimator(Cluster((site,) * self.pp, prices), job)
        order = tuple(range(self.pp))
        plan = estimator.make(order, self.counts, self.dp, [(self.tp, 1)] * self.pp, self.micro_batch)
        port = kind.intra_node_bps if one_node else kind.inter_node_bps
        delay = kind.intra_node_latency_s if one_node else kind.inter_node_latency_s
        links = LinkState(np.full((self.pp, self.pp), gpus * port), np.full((self.pp, self.pp), delay))
        return estimator.iter_ns(plan, links) / 1e9


def vtrain(path: Path) -> Iterator[Case]:
    """1-8 A100 of one node; Megatron-DeepSpeed, full recomputation, 1F1B, fp16 (VIA-Research/vTrain, MICRO
    2024)."""
    for row in csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()):
        yield Case(
            f"tp{row['tensor parallelism']} pp{row['pipeline parallelism']} dp{row['data parallelism']} "
            f"h{row['hidden size']} l{row['# layers']} mbs{row['micro batch']} gbs{row['global batch']}",
            "A100-80", int(row["# layers"]), int(row["hidden size"]), int(row["attention heads"]),
            int(row["sequence length"]), 50304, int(row["tensor parallelism"]),
            int(row["pipeline parallelism"]),
            int(row["data parallelism"]), int(row["micro batch"]), int(row["global batch"]),
            float(row["iteration time (ms)"]) / 1e3,
        )  # fmt: skip


# Micro-batch sizes of NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh. 76B, 145B, 310B and 530B ran the
# interleaved schedule (3, 2, 2, 3 chunks a stage), which is predicted here as plain 1F1B.
SC21_MICRO_BATCH = {
    "1.7B": 16, "3.6B": 16, "7.5B": 16, "18B": 8, "39B": 4, "76B": 2,
    "145B": 2, "310B": 1, "530B": 1, "1T": 1,
}  # fmt: skip


def sc21(path: Path) -> Iterator[Case]:
    """Weak scaling to 3,072 A100 (Narayanan et al., SC 2021, table 1): time from the printed TFLOP/s per
    GPU."""
    for row in csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()):
        micro_batch = SC21_MICRO_BATCH[row["case"].split()[0]]
        yield Case(
            row["case"], "A100-80", int(row["layers"]), int(row["hidden"]), int(row["heads"]),
            int(row["seq_len"]),
            int(row["vocab"]), int(row["tp_derived"]), int(row["pp_derived"]), int(row["dp_derived"]),
            micro_batch, int(row["global_batch"]), float(row["derived_iter_s_formula_96BsLh2"]),
        )  # fmt: skip


def megatron_2020(path: Path) -> Iterator[Case]:
    """V100 and A100, 1 to 128 data-parallel replicas (NVIDIA/Megatron-LM, 2020): one micro-batch per
    replica."""
    for row in csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()):
        tp, gpus, batch = int(row["model_parallel"]), int(row["gpus"]), int(row["global_batch"])
        gpu = "V100-32" if "V100" in row["cluster"] else "A100-40"
        yield Case(
            f"{row['cluster']} {row['case']}", gpu, int(row["layers"]), int(row["hidden"]), int(row["heads"]),
            1024, 51200, tp, 1, gpus // tp, batch * tp // gpus, batch, float(row["iter_ms"]) / 1e3,
        )  # fmt: skip


TABLES = {
    "vtrain_ground_truth_single.csv": vtrain,
    "megatron_sc21_weak_scaling.csv": sc21,
    "megatron_2020_dp_scaling.csv": megatron_2020,
}
CALIBRATION_EVERY = {"vtrain_ground_truth_single.csv": 10}
"""Rows 0, 10, 20, ... of this table set the three numbers of `twin.compute.Host`; the others judge them."""


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, ties in order of appearance."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)


def report(name: str, cases: list[Case], show_rows: bool) -> None:
    predicted = np.array([case.predict_s() for case in cases])
    measured = np.array([case.measured_s for case in cases])
    error = predicted / measured - 1
    if show_rows:
        for case, p, m, e in zip(cases, predicted, measured, error, strict=True):
            print(f"  {case.name:48} predicted {p:9.4f} s  measured {m:9.4f} s  {e:+7.1%}")
    rank = np.corrcoef(ranks(predicted), ranks(measured))[0, 1]
    print(
        f"{name}: {len(cases)} rows, MAPE {np.mean(np.abs(error)):.1%}, "
        f"p90 {np.quantile(np.abs(error), 0.9):.1%}, "
        f"max {np.max(np.abs(error)):.1%}, bias {np.mean(error):+.1%}, Spearman {rank:.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", action="store_true", help="print every row of the small tables")
    arguments = parser.parse_args()
    for name, reader in TABLES.items():
        if not (VALIDATION / name).is_file():
            print(f"{name}: not at {VALIDATION}, skipped")
            continue
        cases = list(reader(VALIDATION / name))
        every = CALIBRATION_EVERY.get(name, len(cases) + 1)
        held_out = [case for n, case in enumerate(cases) if n % every or every > len(cases)]
        report(name, held_out, arguments.rows and len(cases) <= 50)
        if len(held_out) < len(cases):
            report(f"{name}, calibration rows", cases[::every], False)


if __name__ == "__main__":
    main()
