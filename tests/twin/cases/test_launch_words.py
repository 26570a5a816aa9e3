"""Command lines of Megatron-LM and configurations of DeepSpeed, read back into cases."""

import json
import shlex
from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from replay.export.contract import fitted
from replay.export.targets.deepspeed import DeepSpeedTarget
from replay.export.targets.megatron import MegatronTarget
from tests.support.planned_jobs import KINDS
from twin.cases import launch_words, table_answers

SMALL = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --global-batch-size 64"


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("Et*3|tt|tL", [4, 2, 2]),
        ("Et*3|(tt|)*29,L", [4, *[2] * 29, 1]),
        ("E|(t|)*2L", [1, 1, 1, 1]),
        ("Ett,t|(t*2|)*2tL", [4, 2, 2, 2]),
    ],
)
def test_a_layout_is_unrolled_as_megatron_does(text: str, layers: list[int]) -> None:
    assert launch_words.layout(text) == layers


@pytest.mark.parametrize("text", ["Ett|x", "Et*9999|(t*9999)*9999L", "Et|mL", ""])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="layout"):
        launch_words.layout(text)


@pytest.mark.parametrize("kind", ["uneven stages", "three domains", "interleaved", "selective", "experts"])
def test_an_export_is_read_back_as_the_plan_that_it_was(kind: str) -> None:
    job = fitted(MegatronTarget(), KINDS[kind](), nearest=True).job
    text = MegatronTarget().files(job)["arguments.txt"]
    assert isinstance(text, str)
    found = launch_words.megatron("torchrun --nnodes 2 --nproc-per-node 4 pretrain_gpt.py " + text)
    plan = job.plan
    sizes = (plan.shares[0].tp, plan.stages, plan.micro_batch, job.job.global_batch, 8)
    assert tuple(int(found[name]) for name in ("tp", "pp", "micro_batch", "global_batch", "gpus")) == sizes
    assert (found["recompute"], found["zero"], found["dtype"]) == (plan.recompute, "1", "bf16")
    held = [0] * plan.stages
    for part in job.parts():
        held[part.stage] += part.past - part.first
    assert found["cuts"] == "-".join(map(str, held))
    assert found.get("chunks", "1") == str(plan.chunks)
    assert (found["layers"], found["ffn"]) == (str(job.model.blocks), str(job.model.ffn))


def test_the_estimate_of_an_export_is_near_that_of_its_plan() -> None:
    job = KINDS["uneven stages"]()
    text = MegatronTarget().files(job)["arguments.txt"]
    assert isinstance(text, str)
    also = (
        "dp=2",
        "gpu_model=A100-80",
        "domains=a-a-b",
        "wan_bps=5e9",
        "wan_latency_s=0.04",
        "gpus_per_node=4",
    )
    (_, answer), *_ = table_answers.of_table(launch_words.table(text, None, also)).rows
    assert job.iteration_s is not None
    assert answer.iter_s == pytest.approx(job.iteration_s, rel=0.02)


def test_megatrons_own_defaults_are_taken() -> None:
    found = launch_words.megatron(SMALL + " --swiglu")
    assert (found["dtype"], found["zero"], found["recompute"]) == ("fp32", "0", "none")
    assert found["ffn"] == "2688"  # int(4 * 1024 * 2 / 3 / 64) * 64
    found = launch_words.megatron(
        SMALL + " --pipeline-model-parallel-size=4 --num-virtual-stages-per-pipeline-rank=3"
    )
    assert (found["schedule"], found["chunks"]) == ("interleaved", "3") and "cuts" not in found


def test_a_configuration_of_deepspeed_says_batch_precision_and_sharding(tmp_path: Path) -> None:
    job = fitted(DeepSpeedTarget(), KINDS["uneven stages"](), nearest=True).job
    text = DeepSpeedTarget().files(job)["ds_config.json"]
    (tmp_path / "ds.json").write_text(str(text))
    assert launch_words.deepspeed(tmp_path / "ds.json") == {
        "micro_batch": "1", "global_batch": "32", "micro_batches": "16", "dp": "2", "dtype": "bf16",
        "zero": "1", "pp": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "error"),
    [("{", InputError), ("[]", InputError), (json.dumps({"train_batch_size": "auto"}), UsageError)],
)
def test_what_is_no_configuration_is_refused(body: str, error: type, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(body)
    with pytest.raises(error):
        launch_words.deepspeed(tmp_path / "ds.json")


@pytest.mark.parametrize(
    "words", ["--num-layers many", "--hidden-size 1024", f"{SMALL} --pipeline-model-parallel-size 3"
              " --pipeline-model-parallel-layout Et|tL", '--num-layers "24', shlex.quote("x")],
)  # fmt: skip
def test_what_is_no_command_line_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="--from-megatron"):
        launch_words.megatron(words)
