"""One hash per (trace, configuration, seed): in any process, with any hash seed and number of threads, after
any kill; and whatever is altered in a log, its re-execution names the event."""

import copy
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from replay.audit import audit
from replay.log.run_log import RunReader, RunWriter
from replay.run import runner
from replay.store import run_index
from replay.store.event_sinks import DivergenceError
from replay.store.run_header import from_payload
from tests.support import crash_workload as workload
from tests.support.toys import toy_run, without_lake

CIRCUMSTANCES = list(product(("greedy", "mpc", "static", "single"), ("0", "1", "random"), ("1", "8")))
CHANCE = random.Random(0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    return tmp_path / "store"


def elsewhere(repository: Path, store: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.toys", str(store), *words]
    return subprocess.run(
        command, cwd=repository, env=os.environ | more, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("policy", "hash_seed", "threads"), CHANCE.sample(CIRCUMSTANCES, k=min(24, 2 * (workload.EFFORT**2 - 1)))
)
def test_a_run_is_the_same_in_every_process(
    repository: Path, store: Path, policy: str, hash_seed: str, threads: str
) -> None:
    """Without more effort, tests/replay/run/test_runner.py has two processes."""
    there = elsewhere(
        repository, store / "there", policy, PYTHONHASHSEED=hash_seed, OMP_NUM_THREADS=threads,
        NUMBA_NUM_THREADS="1",
    )  # fmt: skip
    assert there.stdout == toy_run(store, policy).digest + "\n", there.stderr
    workload.tally("runs", 1)


@pytest.mark.parametrize(
    "permille", sorted(CHANCE.sample(range(30, 990), k=min(100, 5 * (workload.EFFORT - 1))))
)
def test_a_run_killed_anywhere_is_resumed_to_the_same_digest(
    repository: Path, store: Path, permille: int
) -> None:
    whole = toy_run(store / "whole", "greedy")
    assert elsewhere(repository, store, "greedy", str(permille)).returncode < 0
    (run_id,) = run_index.all_ids(store)
    assert runner.resume(store, run_id).digest == whole.digest
    workload.tally("resumed", 1)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the numbers of a payload are."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def altered(payload: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The payload with one number a little larger."""
    changed = copy.deepcopy(payload)
    *path, last = chance.choice(list(leaves(payload)))
    inside: Any = changed
    for key in path:
        inside = inside[key]
    inside[last] = inside[last] * 1.0000001 + 1e-9 if isinstance(inside[last], float) else inside[last] + 1
    return changed


def test_the_re_execution_names_whatever_number_was_altered(store: Path) -> None:
    done, chance = toy_run(store, "greedy"), random.Random(3)
    events = list(RunReader(run_index.folder(store, done.run_id)).events())
    numbered = [event for event in events[1:-1] if list(leaves(event.payload))]
    for number in range(10 * workload.EFFORT if workload.EFFORT > 1 else 4):
        victim = chance.choice(numbered)
        run_dir = run_index.folder(store, f"forged-{number}")
        with RunWriter.create(run_dir, flush_s=1e9) as writer:
            for event in events[:-1]:
                payload = altered(event.payload, chance) if event is victim else event.payload
                writer.append(event.sim_ns, event.type, payload, wall=event.wall)
            writer.finish(events[-1].payload["totals"], sim_ns=events[-1].sim_ns)
        reader = RunReader(run_dir)
        assert reader.verify() == [], "every hash fits"
        stage, _ = runner.prepare_rerun(store, from_payload(reader.header()), reader.events())
        with pytest.raises(DivergenceError) as found:
            audit.repeat(stage, reader)
        assert found.value.seq == victim.seq
        workload.tally("altered", 1)
