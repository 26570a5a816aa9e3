"""The targets by name: a further one is a class in a file of its own, and one line here."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # the command line needs the names alone
    from replay.export.contract import ExportTarget

TARGETS: Mapping[str, str] = {
    "megatron": "replay.export.targets.megatron:MegatronTarget",
    "torchrun": "replay.export.targets.torchrun:TorchrunTarget",
    "deepspeed": "replay.export.targets.deepspeed:DeepSpeedTarget",
    "slurm": "replay.export.targets.slurm:SlurmTarget",
    "kubernetes": "replay.export.targets.kubernetes:KubernetesTarget",
    "torchft": "replay.export.targets.torchft:TorchftTarget",
    "chakra": "replay.export.targets.chakra:ChakraTarget",
    "astra-sim": "replay.export.targets.astra_sim:AstraSimTarget",
}
"""Module and class of every target."""


def target(name: str) -> "ExportTarget":
    """Returns the target of that name, one of `TARGETS`."""
    module, _, class_name = TARGETS[name].partition(":")
    return cast("ExportTarget", getattr(import_module(module), class_name)())
