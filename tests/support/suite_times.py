"""CPU seconds of the suite: of each test with its processes, of collection, of compilation.

Wall time on a machine that does other work says little; CPU time hardly depends on it.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SLOWEST = 20
CPU = "cpu_s"


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class WorkerClock:
    """Measures in the process that runs tests; the results travel with its reports."""

    def __init__(self) -> None:
        self.collected_s = 0.0
        self.compilation: Any = None

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        result = yield
        self.collected_s = cpu_seconds()
        self._measure_compilation()
        return result

    def _measure_compilation(self) -> None:
        """Add up the seconds of numba's compiler, if the collected tests have loaded it."""
        if "numba" not in sys.modules:
            return
        from numba.core import event

        # Compiling a function compiles those that it calls: the listener counts the outermost time alone.
        self.compilation = event.TimingListener()
        event.register("numba:compile", self.compilation)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[_STARTED] = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        if call.when == "teardown":
            item.user_properties.append((CPU, cpu_seconds() - item.stash[_STARTED]))
        return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            compiled_s = self.compilation.duration if self.compilation and self.compilation.done else 0.0
            output["times"] = (self.collected_s, compiled_s, cpu_seconds())


_STARTED = pytest.StashKey[float]()


class SuiteTimes:
    """Collects the measurements of all workers and prints them at the end."""

    def __init__(self) -> None:
        self.by_test: Counter[str] = Counter()
        self.workers: list[tuple[float, float, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.by_test[report.nodeid] += dict(report.user_properties).get(CPU, 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if "times" in getattr(node, "workeroutput", {}):
            self.workers.append(node.workeroutput["times"])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.workers:
            return
        write = terminalreporter.write_line
        collected, compiled, total = (sum(column) for column in zip(*self.workers, strict=True))
        write(
            f"CPU of {len(self.workers)} workers and their processes: {total:.0f} s, of it collection "
            f"{collected:.0f} s, compilation {compiled:.0f} s; the {SLOWEST} slowest tests:"
        )
        for name, seconds in self.by_test.most_common(SLOWEST):
            write(f"{seconds:7.1f} s  {name}")
        if path := os.environ.get("TWIN_SUITE_TIMES"):
            lines = [f"{seconds:.3f}\t{name}\n" for name, seconds in self.by_test.most_common()]
            Path(path).write_text("".join(lines), encoding="utf-8")


def install(config: pytest.Config) -> None:
    """Register the clock where tests run, and the summary where results arrive."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", default=None):
        config.pluginmanager.register(WorkerClock())
    if not is_worker:
        config.pluginmanager.register(SuiteTimes())
