"""Launch arguments of Megatron-LM."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from replay.export import registry
from replay.export.contract import fitted
from replay.export.targets.megatron import MegatronTarget, layout
from tests.support.planned_jobs import KINDS, tri, uneven

FAKE = '#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" "$CUDA_DEVICE_MAX_CONNECTIONS"\nprintf "%s\\n" "$@"\n'


def words(kind: str) -> list[str]:
    job = fitted(MegatronTarget(), KINDS[kind](), nearest=True).job
    text = MegatronTarget().files(job)["arguments.txt"]
    assert isinstance(text, str)
    return shlex.split(text)


def value(found: list[str], option: str) -> str:
    return found[found.index(option) + 1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("uneven stages", "Et*9|t*9|t*14L"),
        ("three domains", "Et*7|t*12|t*13L"),
        ("interleaved", "Et*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4L"),
        ("experts", "Et*19|t*13L"),
    ],
)
def test_the_layout_places_every_layer(kind: str, expected: str) -> None:
    assert layout(KINDS[kind]()) == expected


def test_an_interleaved_plan_has_a_layout_of_all_chunks() -> None:
    found = words("interleaved")
    stages, parts = int(value(found, "--pipeline-model-parallel-size")), layout(KINDS["interleaved"]())
    assert stages == 4 and parts.count("|") + 1 == 2 * stages
    assert "--no-overlap-p2p-communication" in found


def test_shape_and_sizes_are_those_of_the_job() -> None:
    found = words("three domains")
    assert value(found, "--num-layers") == "32" and value(found, "--ffn-hidden-size") == "11008"
    assert value(found, "--tensor-model-parallel-size") == "2"
    assert (value(found, "--micro-batch-size"), value(found, "--global-batch-size")) == ("1", "32")
    assert value(found, "--recompute-granularity") == "full" and "--use-distributed-optimizer" in found
    assert {"--swiglu", "--disable-bias-linear", "--bf16"} <= set(found)


def test_mixtures_and_latent_attention_have_their_own_arguments() -> None:
    found = words("experts")
    assert (value(found, "--num-experts"), value(found, "--moe-router-topk")) == ("8", "2")
    assert value(found, "--expert-model-parallel-size") == "2" and "--sequence-parallel" in found
    found = words("latent attention")
    assert (value(found, "--kv-lora-rank"), value(found, "--qk-pos-emb-head-dim")) == ("512", "64")
    assert value(found, "--moe-layer-freq").startswith("[0,1,1")


def test_one_width_is_chosen_for_all_domains_with_the_same_gpus() -> None:
    job = KINDS["other widths"]()
    found = fitted(MegatronTarget(), job, nearest=True)
    assert len({share.tp for share in found.job.plan.shares}) == 1
    assert [len(s.gpus) for s in found.job.plan.shares] == [len(s.gpus) for s in job.plan.shares]
    assert not job.estimator.problems(found.job.plan)
    assert "us-east-1 tp 2, eu-west-1 tp 1" in found.changed[0].part


def test_the_launcher_gives_torchrun_the_place_of_its_node(tmp_path: Path) -> None:
    job = tri(uneven())
    for name, data in MegatronTarget().files(job).items():
        assert isinstance(data, str)
        (tmp_path / name).write_text(data)
    (tmp_path / "torchrun").write_text(FAKE)
    (tmp_path / "torchrun").chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "MASTER_ADDR": "10.0.0.1"}
    done = subprocess.run(
        ["bash", tmp_path / "launch.sh", "ap-northeast-1-node0", "--train-iters", "5"],
        env=path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    gpus, *given = done.stdout.splitlines()
    assert gpus == "0,1 1"
    assert given[:6] == ["--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2"]
    assert "10.0.0.1" in given and "./pretrain_gpt.py" in given
    assert value(given, "--pipeline-model-parallel-layout") == "Et*9|t*9|t*14L"
    assert given[-2:] == ["--train-iters", "5"]
    wrong = subprocess.run(["bash", tmp_path / "launch.sh", "mars"], env=path, capture_output=True, text=True)
    assert wrong.returncode == 2 and "none of" in wrong.stderr


def test_ranks_go_tensor_first_then_data_then_stage() -> None:
    table = registry.target("megatron").files(KINDS["three domains"]())["ranks.csv"]
    assert isinstance(table, str)
    rows = [line.split(",") for line in table.splitlines()[1:]]
    assert rows[0][1] == "ap-northeast-1" and rows[4][1] == "us-east-1"
    assert [row[4:] for row in rows[:5]] == [
        ["0", "0", "0"], ["0", "0", "1"], ["0", "1", "0"], ["0", "1", "1"], ["1", "0", "0"],
    ]  # fmt: skip
