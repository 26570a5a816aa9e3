"""Kits of the readers of layer, collective and step-time profiles."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.kit import Bad, Kit, lines


def dumped(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode()


def layers(count: int = 26, first: Any = (0.002, 1e-6, 0.0005)) -> dict[str, Any]:
    """The entries of one micro-batch and tp."""
    return {"0": list(first)} | {str(n): [0.003, 0.006, 0.0005] for n in range(1, count)}


def sailor(**changes: Any) -> bytes:
    return dumped({"1": {"2": layers(**changes)}})


def metis(times: list[Any], memory: list[Any] | None = None) -> bytes:
    held = [100.0] * len(times) if memory is None else memory
    return dumped(
        {
            "model": {
                "model_name": "OPT-350",
                "num_layers": len(times),
                "parameters": {"parameters_per_layer_bytes": [4096] * 3},
            },
            "execution_time": {"layer_compute_total_ms": times},
            "execution_memory": {"layer_memory_total_mb": held},
        }
    )


OPS = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,"
OPS += "fwd_reserved,bwd_reserved"


def operator(name: str = "enc-attention-qkv", forward: str = "708.879", weights: str = "24.000") -> str:
    return f"{name},{forward},1296.924,16.000,32.000,{weights},24.000,20.000,202.000"


NETWORK = (
    ",time_stats.all_reduce.min,time_stats.all_reduce.max,time_stats.all_reduce.median,rank,num_workers,"
)
NETWORK += "size,collective,devices_per_node,max_devices_per_node"


def reduced(row: int = 0, median: str = "0.043", size: str = "2048", ranks: str = "16") -> str:
    return f"{row},0.031,0.077,{median},0,{ranks},{size},all_reduce,8,8"


def rank(number: int, times: list[Any], forward: Any = 0.1) -> dict[str, Any]:
    """A rank of a measured run: the first iteration has one forward more."""
    per_iteration = [[0.9, forward, 0.1]] + [[forward, 0.1]] * (len(times) - 1)
    return {
        "rank": number,
        "iter_time": times,
        "iter_energy": [100.0] * len(times),
        "time_breakdown": {"forward": per_iteration, "backward": per_iteration},
    }


def operations(**changes: Any) -> bytes:
    """A training trace of two ranks and two steps."""
    columns: dict[str, Any] = {
        "dp_rank": pa.array([0, 0, 1, 1], pa.int8()),
        "stage": pa.array([0, 0, 1, 1], pa.int8()),
        "rank": pa.array([0, 0, 4, 4], pa.int16()),
        "step": pa.array([16, 21, 16, 21], pa.int64()),
        "optype": pa.array(["forward-compute", "gc", "forward-send", "optimizer"]).dictionary_encode(),
        "start_ts": pa.array([0.5, 0.0, 0.25, 1.0], pa.float32()),
        "duration": pa.array([1.0, 0.5, 0.25, 2.0], pa.float32()),
        "seq_id": pa.array([0, 1, 2, 3], pa.int32()),
        "mb_id": pa.array([0, -1, 1, -1], pa.int8()),
    }
    held = io.BytesIO()
    pq.write_table(pa.table(columns | changes), held)
    return held.getvalue()


def golden(times: dict[str, Any], memory: dict[str, Any] | None = None) -> bytes:
    series = {"start_step": 1, "end_step": 20, "step_interval": 5}
    held = dict.fromkeys(times, 1024.0) if memory is None else memory
    return dumped(
        {
            "lm loss": series | {"values": {"1": 13.05}},
            "mem-max-allocated-bytes": series | {"values": held},
            "iteration-time": series | {"values": times},
        }
    )


KITS: tuple[Kit, ...] = (
    Kit(
        "sailor-profile",
        "OPT-350/GH-96/profile.json",
        sailor(),
        {"layer_profiles": 26},
        (
            Bad("negative", sailor(first=(-1, 0, 0)), 25, 1, "negative"),
            Bad("word", sailor(first=("fast", 0, 0)), 25, 1, "not a number"),
            Bad("NaN", sailor(first=(float("nan"), 0, 0)), 25, 1, "not finite"),
            Bad("two numbers", sailor(first=(1, 0)), 25, 1, "not enough values"),
            Bad("layers of another model", sailor(count=3), 0, 3, "3 layers, but OPT-350 has 26"),
            Bad("cut", sailor()[:-40], 0, 1, "not a complete document"),
        ),
        text=False,
    ),
    Kit(
        "metis-profile",
        "OPT-350/GH-96/mbs4_tmp2.json",
        metis([0.9, 7.3, 1.5]),
        {"layer_profiles": 3},
        (
            Bad("negative", metis([0.9, -7.3, 1.5]), 2, 1, "negative"),
            Bad("a layer without a time", metis([0.9, 7.3]), 0, 1, "2 times for 3 layers"),
            Bad("no memory", metis([0.9, 7.3, 1.5], ["lots", 1, 2]), 2, 1, "not a number"),
        ),
        text=False,
    ),
    Kit(
        "aceso-ops",
        "ops/gpt_350M_mbs4_tp2_algo1.csv",
        lines(OPS, operator(), operator("enc-MLP-GEMM-1")),
        {"layer_profiles": 2},
        (
            Bad("negative", lines(OPS, operator(forward="-1"), operator()), 1, 1, "negative"),
            Bad("word", lines(OPS, operator(forward="oom"), operator()), 1, 1, "not a number"),
            Bad("short row", lines(OPS, "enc,1,2", operator()), 1, 1, "fields"),
        ),
        toml='gpu_model = "V100-32"',
    ),
    Kit(
        "aceso-collectives",
        "A100-40/prim_OPT-350_all_gather_4gpus.csv",
        lines("data_size(MB),time(ms)", "12,0.530", "8, 0.394"),
        {"collective_profiles": 2},
        (
            Bad("failed", lines("data_size(MB),time(ms)", "4096,1000000000.000", "8,0.4"), 1, 1, "failed"),
            Bad("negative", lines("data_size(MB),time(ms)", "8,-0.4", "8,0.4"), 1, 1, "negative"),
            Bad("word", lines("data_size(MB),time(ms)", "big,0.4", "8,0.4"), 1, 1, "not a whole number"),
        ),
    ),
    Kit(
        "aceso-results",
        "perf_model_time_large_gpt.csv",
        lines("size,350M,1_3B", "actual,190.58, 100.28", "predict,200.71, 101.18"),
        {"step_times": 2},
        (
            Bad("word", lines("size,350M,1_3B", "actual,190.58, oom"), 1, 1, "not a number"),
            Bad("negative", lines("size,350M,1_3B", "actual,-1, 2"), 1, 1, "negative"),
        ),
    ),
    Kit(
        "vidur",
        "a100_dgx/all_reduce.csv",
        lines(NETWORK, reduced(), reduced(1, size="10240")),
        {"collective_profiles": 2},
        (
            Bad("negative", lines(NETWORK, reduced(median="-1"), reduced()), 1, 1, "negative"),
            Bad("blank", lines(NETWORK, reduced(median=""), reduced()), 1, 1, "measures nothing"),
            Bad("half a byte", lines(NETWORK, reduced(size="0.5"), reduced()), 1, 1, "not a whole number"),
            Bad("no ranks", lines(NETWORK, reduced(ranks="0"), reduced()), 1, 1, "at least 1"),
        ),
    ),
    Kit(
        "galvatron",
        "gpt_hf/computation_profiling_bf16_hidden4096_head32_seqlen2048.json",
        dumped(
            {"layernum[6]_bsz2": 69.1, "layernum[2]_bsz1": 19.1, "layertype_0": 5.3, "layertype_0_bsz1": -2}
        ),
        {"layer_profiles": 3},
        (
            Bad("negative", dumped({"layernum[6]_bsz2": -69.1, "layertype_0": 5.3}), 1, 1, "negative"),
            Bad("another key", dumped({"layernum[6]_bsz2": 1, "speed": 5.3}), 1, 1, "not a key"),
            Bad("no batch", dumped({"layernum[6]_bsz0": 1, "layertype_0": 1}), 1, 1, "at least 1"),
        ),
        text=False,
    ),
    Kit(
        "perseus",
        "A100_dp1+pp4+tp1_gpt3-xl_0.prof.json",
        dumped([rank(0, [9.0, 6.1, 6.2]), rank(1, [9.0, 6.1, 6.2])]),
        {"step_times": 4, "op_times": 16},
        (
            Bad("negative", dumped([rank(0, [9.0, -6.1, 6.2])]), 9, 1, "negative"),
            Bad("word", dumped([rank(0, [9.0, 6.1], "slow")]), 3, 2, "not a number"),
            Bad("no energy", dumped([{"rank": 0, "iter_time": [1, 2]}]), 0, 1, "no 'iter_energy'"),
        ),
        text=False,
    ),
    Kit(
        "training-trace",
        "trace-AR.parquet",
        operations(),
        {"op_times": 4, "step_times": 2},
        (
            Bad(
                "negative",
                operations(duration=pa.array([-1.0, 0.5, 0.25, 2.0], pa.float32())),
                5,
                1,
                "negative",
            ),
            Bad(
                "not finite",
                operations(duration=pa.array([1.0, 0.5, float("nan"), 2.0], pa.float32())),
                5,
                1,
                "not a finite number",
            ),
        ),
        text=False,
    ),
    Kit(
        "megatron-golden",
        "gpt3_15b/golden_values_dev_dgx_h100.json",
        golden({"1": "nan", "5": 1.45, "10": 1.46}),
        {"step_times": 3},
        (
            Bad("negative", golden({"5": -1.45, "10": 1.46}), 1, 1, "negative"),
            Bad("word", golden({"5": "soon", "10": 1.46}), 1, 1, "not a number"),
            Bad("no series", dumped({"lm loss": {"start_step": 1, "step_interval": 5}}), 0, 1, "neither"),
        ),
        text=False,
    ),
    Kit(
        "traffic-prices",
        "network/communication_cost.json",
        dumped({"us-a": {"us-a": 0.0, "eu-b": 0.02}, "eu-b": {"us-a": 0.08, "eu-b": 0}}),
        {"prices": 2},
        (
            Bad("negative", dumped({"us-a": {"eu-b": 0.02}, "eu-b": {"us-a": -0.08}}), 1, 1, "negative"),
            Bad("word", dumped({"us-a": {"eu-b": 0.02}, "eu-b": {"us-a": "free"}}), 1, 1, "not a number"),
            Bad("no pairs", dumped({"us-a": {"eu-b": 0.02}, "eu-b": 3}), 0, 1, "not a complete document"),
        ),
        text=False,
    ),
    Kit(
        "gpu-capacity",
        "gpu_availability/a100_trace.json",
        dumped([{"Time": 0, "GPUs": 4}, {"Time": 63.5, "GPUs": 3}]),
        {"availability": 2},
        (
            Bad("negative", dumped([{"Time": 0, "GPUs": -4}, {"Time": 63, "GPUs": 3}]), 1, 1, "negative"),
            Bad("half", dumped([{"Time": 0, "GPUs": 0.5}, {"Time": 63, "GPUs": 3}]), 1, 1, "whole number"),
            Bad("no number", dumped([{"Time": 0, "GPUs": 4}, {"Time": 63}, 7]), 1, 2, ""),
            Bad("too late", dumped([{"Time": 0, "GPUs": 4}, {"Time": 1e12, "GPUs": 4}]), 1, 1, "range"),
        ),
        text=False,
    ),
)
