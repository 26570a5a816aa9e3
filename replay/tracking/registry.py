"""The trackers by name: a further one is a class in a file of its own, and one line here."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # the command line needs the names alone
    from replay.tracking.contract import Tracker

TRACKERS: Mapping[str, str] = {
    "mlflow": "replay.tracking.mlflow_store:MlflowStore",
    "tensorboard": "replay.tracking.tensorboard_events:TensorboardEvents",
    "wandb": "replay.tracking.wandb_run:WandbRun",
}
"""Module and class of every tracker."""


def tracker(name: str) -> "Tracker":
    """Returns the tracker of that name, one of `TRACKERS`."""
    module, _, class_name = TRACKERS[name].partition(":")
    return cast("Tracker", getattr(import_module(module), class_name)())
