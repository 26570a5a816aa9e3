"""T23: how many small faults in the log's code its tests notice: python -m benchmarks.replay.mutation

Each mutant changes one place of one file (a comparison turned, `and` for `or`, a `not` dropped, a number one
larger, a constant flipped, a statement or a raise left out) and lives in a child process only, in which the
tests below run until the first failure. A mutant that no test notices is listed with its line: it is either
equal in effect, or a test is missing. `--sample 100` takes a hundred at random (seeded), else all; with
`--tried FILE` an interrupted trial goes on.
"""

import argparse
import ast
import copy
import gc
import hashlib
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import duckdb  # noqa: F401 - imported here once, so that no child does
import pyarrow.parquet  # noqa: F401
import pytest

import policy.core.registry  # noqa: F401 - with twin and numba; none of them imports replay
from ingest.core.durable import replace

ROOT = Path(__file__).resolve().parents[2]
FILES = ("segment", "tail", "recovery", "run_log", "verification")
STAGES = (  # the quick ones first: most mutants end there, without the imports of the others
    (
        "tests/replay/log/test_segment.py",
        "tests/replay/log/test_tail.py",
        "tests/replay/log/test_recovery.py",
        "tests/replay/log/test_verification.py",
        "tests/replay/log/test_run_log.py",
    ),
    ("tests/replay/log/test_races.py", "tests/crash/test_directory_states.py"),
    (
        "tests/crash/test_power_cut.py",
        "tests/crash/test_io_errors.py",
        "tests/golden",
        "tests/crash/test_compaction.py",
        "tests/crash/test_growing.py",
        "tests/crash/test_damage.py",
    ),
)
LONGEST = 3
"""A mutant that keeps a stage computing for so many times the usual time never ends, which is noticed too."""
WAITS_S = 900
"""So does one that is not done after so long, whether it computes or waits."""
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def mutants(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """(line, what was changed, the changed module) for every place that can be."""
    decorating = {id(part) for node in ast.walk(tree) for part in _decorators(node)}
    for number, node in enumerate(ast.walk(tree)):
        for what in changes(node) if id(node) not in decorating else ():
            changed = copy.deepcopy(tree)
            twin = next(n for k, n in enumerate(ast.walk(changed)) if k == number)
            apply(twin, what)
            yield getattr(node, "lineno", 0), what, ast.fix_missing_locations(changed)


def _decorators(node: ast.AST) -> Iterator[ast.AST]:
    """All below the decorators of a class or function: that data are frozen is no behaviour to be noticed."""
    for decorator in getattr(node, "decorator_list", ()):
        yield from ast.walk(decorator)


def changes(node: ast.AST) -> list[str]:
    """What can be done to a node."""
    if isinstance(node, ast.Compare):
        return [f"comparison {k} turned" for k, op in enumerate(node.ops) if type(op) in TURNED]
    if isinstance(node, ast.BoolOp):
        return ["and for or" if isinstance(node.op, ast.Or) else "or for and"]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ["not dropped"]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        return ["constant changed"]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return ["+ for -" if isinstance(node.op, ast.Sub) else "- for +"]
    block = getattr(node, "body", None)
    body = [n for n in block if droppable(n)] if isinstance(block, list) else []
    return [f"statement of line {n.lineno} left out" for n in body]


def droppable(node: ast.stmt) -> bool:
    """Statements with an effect of their own; not the words of a docstring."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Raise | ast.AugAssign)


def apply(node: ast.AST, what: str) -> None:
    """Do it."""
    if isinstance(node, ast.Compare):
        place = int(what.split()[1])
        node.ops[place] = TURNED[type(node.ops[place])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, ast.UnaryOp):
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant):
        assert isinstance(node.value, bool | int)
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.BinOp):
        node.op = ast.Add() if isinstance(node.op, ast.Sub) else ast.Sub()
    else:
        body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
        place = next(k for k, n in enumerate(body) if what == f"statement of line {n.lineno} left out")
        body[place] = ast.copy_location(ast.Pass(), body[place])


class Mutant(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for one module of the package."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self.name, self.path, self.tree = name, path, tree

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.tree, self.path, "exec"), module.__dict__)


def noticed(name: str, path: Path, tree: ast.Module, longest_s: Sequence[float]) -> bool:
    """Whether a test fails on the mutant, in a child process, or a stage of them computes too long."""
    child = os.fork()
    if child == 0:
        gc.freeze()  # what is imported by now has not to be looked through again
        sys.meta_path.insert(0, Mutant(name, path, tree))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(WAITS_S)
        for tests, most_s in zip(STAGES, longest_s, strict=True):
            signal.setitimer(signal.ITIMER_PROF, most_s)  # time of this process: others' load counts nothing
            if _fails(tests):
                os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def _fails(tests: Sequence[str]) -> bool:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]) != 0


class Tried:
    """Which mutants were noticed, kept in a file so that an interrupted trial goes on; a changed module is
    tried anew.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, float] = json.loads(path.read_text()) if path and path.exists() else {}

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def found(self, key: str, find: Callable[[], float]) -> float:
        """What was found out under `key`, now if it was not yet."""
        if key not in self._known:
            self._known[key] = find()
            if self._path:
                replace(self._path, json.dumps(self._known, indent=1).encode())
        return self._known[key]


def every_mutant() -> list[tuple[str, Path, int, str, ast.Module, str]]:
    """(file, path, line, what was changed, the changed module, a name for it) of all files."""
    found = []
    for file in FILES:
        path = ROOT / "replay" / "log" / f"{file}.py"
        text = path.read_text(encoding="utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        for number, (line, what, tree) in enumerate(mutants(ast.parse(text))):
            found.append((file, path, line, what, tree, f"{file} {digest} {number}"))
    return found


def usual_s(tests: Sequence[str]) -> float:
    """How long a process computes in these tests on the code as it is."""
    child = os.fork()
    if child == 0:
        os._exit(int(_fails(tests)))
    _, status, used = os.wait4(child, 0)
    assert status == 0, f"{', '.join(tests)}: fail on the code as it is"
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print each mutant that nothing noticed, and the share that was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="So many at random, else all.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tried", type=Path, help="Keep what came of each in this file, and go on from it.")
    parser.add_argument("--so-far", action="store_true", help="Try none: what came of those in TRIED.")
    given = parser.parse_args()
    os.chdir(ROOT)
    found, tried = every_mutant(), Tried(given.tried)
    stages = enumerate(() if given.so_far else STAGES)
    usual = [tried.found(f"usual s of stage {k}", partial(usual_s, tests)) for k, tests in stages]
    longest_s = [LONGEST * seconds for seconds in usual]
    if given.so_far:
        chosen = [mutant for mutant in found if mutant[-1] in tried]
    else:
        chosen = random.Random(given.seed).sample(found, min(given.sample or len(found), len(found)))
    print(f"{len(found)} mutants of {', '.join(FILES)}; {len(chosen)} tried", flush=True)
    began, survivors = time.perf_counter(), 0
    for file, path, line, what, tree, key in chosen:
        if not tried.found(key, partial(noticed, f"replay.log.{file}", path, tree, longest_s)):
            survivors += 1
            print(f"replay/log/{file}.py:{line}: {what}: not noticed", flush=True)
    killed, seconds = len(chosen) - survivors, time.perf_counter() - began
    print(f"{killed} of {len(chosen)} noticed, {killed / len(chosen):.1%}; {seconds:.0f} s")


if __name__ == "__main__":
    main()
