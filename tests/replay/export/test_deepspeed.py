"""The configuration of DeepSpeed, and the module that keeps the stages of a plan."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from replay.export.contract import fitted
from replay.export.planned_job import PlannedJob
from replay.export.targets.deepspeed import DeepSpeedTarget, configuration
from tests.support.planned_jobs import KINDS, tri, uneven


def nearest(kind: str) -> PlannedJob:
    return fitted(DeepSpeedTarget(), KINDS[kind](), nearest=True).job


@pytest.mark.parametrize("kind", ["uneven stages", "one domain", "deeper warm-up", "ZeRO 3", "zb-h1"])
def test_the_batch_is_the_product_that_deepspeed_checks(kind: str) -> None:
    job = nearest(kind)
    found = configuration(job)
    product = found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * job.plan.dp
    assert found["train_batch_size"] == product == 32
    assert found["bf16"]["enabled"] and not found["fp16"]["enabled"]


def test_pipelines_shard_optimizer_states_at_most() -> None:
    assert configuration(nearest("ZeRO 3"))["zero_optimization"] == {"stage": 1}
    assert configuration(nearest("ZeRO 3"))["pipeline"] == {"stages": 3}


def test_tensor_ranks_become_stages_where_they_fit() -> None:
    job = nearest("three domains")
    assert [(share.tp, share.pp) for share in job.plan.shares] == [(1, 2)] * 3


class PipelineModule:
    """Stands for DeepSpeed's: calls the hook that balances stages."""

    def __init__(self, layers: list[int], topology: tuple[int, ...], **more: object) -> None:
        self._topo = SimpleNamespace(get_coord=lambda rank: SimpleNamespace(pipe=rank // 2))
        self.global_rank, self.layers, self.topology = 4, layers, topology
        self._partition_layers(method="parameters")  # type: ignore[attr-defined]

    def _set_bounds(self, start: int, stop: int) -> None:
        self.mine = self.layers[start:stop]


def test_the_module_keeps_the_stages_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, held in {
        "deepspeed": {}, "deepspeed.pipe": {"PipelineModule": PipelineModule}, "deepspeed.runtime": {},
        "deepspeed.runtime.pipe": {}, "deepspeed.runtime.pipe.topology": {
            "PipeModelDataParallelTopology": lambda num_pp, num_mp, num_dp: (num_pp, num_mp, num_dp)
        },
    }.items():  # fmt: skip
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    files = DeepSpeedTarget().files(tri(uneven()))
    own: dict[str, type] = {}
    exec(compile(files["planned_pipeline.py"], "planned_pipeline.py", "exec"), own)
    made = own["PlannedPipeline"](list(range(34)))
    assert made.parts == [0, 10, 19, 34] and made.topology == (3, 1, 2)
    assert made.mine == list(range(19, 34))
    with pytest.raises(ValueError, match="the plan is for 34 layers, these are 33"):
        own["PlannedPipeline"](list(range(33)))
    assert json.loads(files["model.json"])["blocks"] == 32
