"""The Ray cluster that RAY_ADDRESS names, or one on this machine; needs the extra `ray`."""

import os
import sys
from contextlib import ExitStack, redirect_stdout
from socket import create_connection
from typing import Any

from ingest.core import extras
from ingest.core.errors import UsageError

ADDRESS = "RAY_ADDRESS"
ANSWER_S = 10.0
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray would tell its makers over the network
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its default changes, and it warns of that
}
"""Variables of Ray's own, unless they are set."""


class RayCluster:
    """Joined on creation; `module` is Ray.

    A program that has joined a cluster already stays in that one. Until `close`, stdout is stderr.

    Raises:
        UsageError: Ray is not installed, or no cluster of its version answers at RAY_ADDRESS.
    """

    def __init__(self, workers: int, what: str):
        """Joins for `what`; a cluster started here has `workers` CPUs and ends with `close`."""
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError as error:
            raise extras.missing("ray", what) from error
        self.module: Any = ray
        self._block = ExitStack()
        if not ray.is_initialized():
            _join(ray, workers)
            self._block.callback(ray.shutdown)
        self._block.enter_context(redirect_stdout(sys.stderr))  # Ray prints there which workers died

    def close(self) -> None:
        """Leaves the cluster, and ends it if it was started here."""
        self._block.close()


def _join(ray: Any, workers: int) -> None:
    address = os.environ.get(ADDRESS)
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():
            create_connection((host, int(port)), ANSWER_S).close()  # Ray itself tries for minutes
        ray.init(
            num_cpus=None if address else workers, include_dashboard=False, log_to_driver=False,
            logging_level="error",
        )  # fmt: skip
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        if not address:
            raise
        raise UsageError(
            f"{ADDRESS}={address}: no Ray cluster of this version ({ray.__version__}) answers there; start "
            f"one with `ray start --head`, or unset {ADDRESS} to use this machine"
        ) from error
