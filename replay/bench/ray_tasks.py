"""Items of a bench as tasks of a Ray cluster.

A task whose worker dies is begun again by Ray, on any node; a run that was on its way is finished from its
log (`cells.run_cell`), so that the death changes nothing that a run stands for. The store must lie where
every node reads and writes it under the same path.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ingest.core.errors import TwinError
from policy.core.ray_cluster import RayCluster

Out = TypeVar("Out")

ATTEMPTS = 4
"""Of one item, while its workers die."""


@contextmanager
def joined(store: Path, workers: int) -> Iterator[Callable[[int], Executor]]:
    """Joins a cluster, or starts one with `workers` CPUs; yields what makes executors on it.

    Raises:
        UsageError: Ray is not installed, or no cluster answers at RAY_ADDRESS.
    """
    cluster = RayCluster(workers, "a bench over Ray")
    try:
        yield partial(RayExecutor, cluster.module)
    finally:
        cluster.close()


class RayExecutor(ThreadPoolExecutor):
    """Up to `count` tasks of a cluster at a time, each awaited by a thread.

    What is not begun lies in this process and can be cancelled; Ctrl-C also ends the tasks that run.
    """

    def __init__(self, ray: Any, count: int):
        super().__init__(count, thread_name_prefix="ray")
        self._ray = ray
        self._task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_call)
        self._running = set[Any]()

    def submit(self, work: Callable[..., Out], /, *args: Any, **named: Any) -> Future[Out]:
        """Returns the future of `work(...)`, done by a task."""
        return super().submit(self._await, partial(work, *args, **named))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Waits for the tasks that run; after Ctrl-C, ends them."""
        if kind is not None and not issubclass(kind, Exception):
            for task in tuple(self._running):
                self._ray.cancel(task, force=True)
        self.shutdown(wait=True)

    def _await(self, work: Callable[[], Out]) -> Out:
        """Returns the result of a task.

        Raises:
            TwinError: its workers died again and again. Else what the work raised.
        """
        task = self._task.remote(work)
        self._running.add(task)
        try:
            result: Out = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as failed:
            raise failed.cause from failed
        except self._ray.exceptions.RayError as lost:
            raise TwinError(
                f"a task was lost {ATTEMPTS} times on the Ray cluster ({type(lost).__name__}); see "
                "the memory and the logs of its nodes (`ray status`), then give the same command again: what "
                "is finished is kept"
            ) from lost
        finally:
            self._running.discard(task)
        return result


def _call(work: Callable[[], Out]) -> Out:
    return work()
