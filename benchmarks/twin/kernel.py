"""Speed of the pipeline kernel on one core: python -m benchmarks.twin.kernel

Prints evaluations per second (best of five) over growing S and m, the referee beside it, the first call of
a fresh process, the search path of the Estimator, cost models included, and one question to `twin estimate`
beside what the closest public estimator says of itself.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from timeit import repeat

import numpy as np

from ingest.core.durable import replace
from twin.core.plan import PointToPoint, Schedule
from twin.pipeline.kernel import iteration_ns
from twin.pipeline.pipeline import Pipeline, warmup_depths
from twin.pipeline.reference_simulator import simulate

ROOT = Path(__file__).resolve().parents[2]
QUESTION = """gpu_model,gpus,layers,hidden,heads,seq,vocab,dtype,tp,pp,dp,micro_batch,global_batch
A100-80,3072,128,25600,160,2048,51200,fp16,8,64,6,1,3072"""
CALCULON = (
    "Calculon, the closest public estimator, says of the same question `~1 sec` a calculation, and `~1 min` "
    "for a search over the executions of 530 B parameters on 5,128 GPUs (calculon-ai/calculon, README.md at "
    "013a664; not run here)"
)
FRESH = """
import time; start = time.perf_counter()
from twin.pipeline.kernel import iteration_ns
from twin.pipeline.pipeline import Pipeline
imported = time.perf_counter()
iteration_ns(Pipeline.single([1] * 4, [2] * 4, [1] * 3, [1] * 3, [1] * 3, [1] * 3, [0] * 4, micro_batches=16))
print(f"{imported - start:.2f} s import, {time.perf_counter() - imported:.2f} s first call")
"""


def make(stages: int, m: int, plans: int, schedule: Schedule, p2p: PointToPoint) -> Pipeline:
    """Random durations, every plan its own links."""
    rng = np.random.default_rng(7)
    stage = [rng.integers(1, 10**9, (stages, plans)) for _ in range(3)]
    boundary = [rng.integers(1, 10**8, (stages - 1, plans)) for _ in range(4)]
    depths = warmup_depths(stages, m)
    return Pipeline(stage[0], stage[1], *boundary, stage[2], depths, m, schedule, p2p)


def kernel_table() -> None:
    print("  S    m  schedule  p2p          evaluations/s   ns per stage operation")
    for stages, m in ((2, 16), (4, 16), (4, 64), (4, 256), (8, 16), (8, 64), (16, 64), (16, 128)):
        for schedule in ("1f1b", "gpipe"):
            for p2p in ("blocking", "overlapped", "rendezvous"):
                plans = max(64, 2_000_000 // (stages * m * 8))
                pipeline = make(stages, m, plans, schedule, p2p)
                iteration_ns(pipeline)
                seconds = min(repeat(lambda pipeline=pipeline: iteration_ns(pipeline), number=1))
                per_second, each = plans / seconds, seconds / plans / (2 * stages * m) * 1e9
                print(f"{stages:3} {m:4}  {schedule:8}  {p2p:10} {per_second:15,.0f}   {each:10.2f}")


def referee_line() -> None:
    pipeline = make(4, 16, 1, "1f1b", "blocking")
    seconds = min(repeat(lambda: simulate(pipeline), number=1))
    one = min(repeat(lambda: iteration_ns(pipeline), number=1, repeat=50))
    print(
        f"one plan at S = 4, m = 16: kernel {one * 1e6:.0f} us a call, SimPy referee {seconds * 1e3:.2f} ms"
    )


def search_line() -> None:
    from twin.core.domain import Cluster, Domain, LinkState
    from twin.core.gpu_models import fabric, preset
    from twin.core.job import JobSpec
    from twin.core.model_presets import preset as model
    from twin.estimation.estimator import Estimator

    kind = fabric("A100-80")
    site = Domain(
        "d",
        preset("A100-80"),
        16,
        kind.gpus_per_node,
        kind.intra_node_bps,
        kind.inter_node_bps,
        3e-6,
        8e-6,
        2.0,
    )
    estimator = Estimator(Cluster((site,) * 4, ((0.02,) * 4,) * 4), JobSpec(model("llama2-70b"), 16, (1,)))
    links = LinkState(np.full((4, 4), 5e9), np.full((4, 4), 0.05))
    axes = np.meshgrid(*[np.arange(2, 80)] * 3, indexing="ij")
    inside = np.stack([axis.ravel() for axis in axes], axis=1)
    inside = inside[(np.diff(inside, axis=1) >= 1).all(axis=1)]
    cuts = np.column_stack([np.zeros(len(inside), int), inside, np.full(len(inside), 82)])
    for inner in (((8, 1),) * 4, ((8, 2),) * 4):
        estimator.iter_ns_cuts(range(4), cuts[:100], 1, inner, 1, links)
        times = estimator.iter_ns_cuts(range(4), cuts, 1, inner, 1, links)
        fit = int(np.sum(times < np.iinfo(np.int64).max))
        seconds = min(
            repeat(lambda inner=inner: estimator.iter_ns_cuts(range(4), cuts, 1, inner, 1, links), number=1)
        )
        stages = sum(pp for _, pp in inner)
        print(
            f"Estimator.iter_ns_cuts, 4 domains, {stages} stages, m = 16: {len(cuts)} plans ({fit} feasible) "
            f"in {seconds:.3f} s, {len(cuts) / seconds:,.0f} plans/s"
        )


def question_line() -> None:
    """Megatron's 1T on 3,072 A100, the row that Calculon's README asks: a fresh command, and one answer."""
    from twin.cases import table_reader
    from twin.cases.answer import answer
    from twin.cases.resolve import resolve

    header, row = QUESTION.split()
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    answer(resolve(table_reader.parse(cells)))
    each_s = min(repeat(lambda: answer(resolve(table_reader.parse(cells))), number=1, repeat=50))
    with TemporaryDirectory() as folder:
        table = Path(folder) / "cases.csv"
        replace(table, QUESTION.encode())
        command = [sys.executable, "cli.py", "estimate", str(table), "--store", folder]
        fresh_s = min(
            repeat(
                lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=True), number=1, repeat=3
            )
        )
    print(
        f"twin estimate of Megatron 1T on 3,072 A100: {fresh_s:.2f} s as a command, {each_s * 1e3:.2f} ms an "
        f"answer inside a process; {CALCULON}"
    )


def main() -> None:
    kernel_table()
    referee_line()
    search_line()
    question_line()
    fresh = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=ROOT, capture_output=True, text=True, check=True
    )
    print(f"fresh process, compiled code cached: {fresh.stdout.strip()}")


if __name__ == "__main__":
    main()
