"""Defaults of the training frameworks for switches that a row of `twin estimate` leaves empty."""

from collections.abc import Mapping

from twin.cases.column_definitions import Cell

FRAMEWORKS: Mapping[str, Mapping[str, Cell]] = {
    # Megatron-LM up to 2021 and Megatron-DeepSpeed: fused cross entropy, dropout in the GPT family.
    "megatron": {},
    # Megatron-Core: its recipes split sequences over tensor groups (--sequence-parallel); buckets of 40
    # million parameters in fp32 (bucket_size in megatron/core/distributed/distributed_data_parallel.py).
    "megatron-core": {"sequence_parallel": True, "bucket_bytes": 160e6},
    # DistributedDataParallel reduces buckets of 25 MB beside the backward (bucket_cap_mb, Li et al. 2020);
    # autocast computes the cross entropy in fp32; Hugging Face's and nanoGPT's models train without dropout.
    "pytorch": {"overlap_reduction": True, "bucket_bytes": 25e6, "fp32_logits": True, "dropout": False},
}


def filled(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """The cells of a row, with the defaults of its framework where they are empty."""
    return {**FRAMEWORKS[cells.get("framework", "megatron")], **cells}
