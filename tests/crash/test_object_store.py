"""Log and lake on a real S3 server: kills of the writer and of the server, and races of two writers.

`python -m benchmarks.replay.object_store` does the same with 200 kills and 50 races.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import bucket_trials, lake_trials
from tests.support import crash_workload as workload
from tests.support.buckets import Server, environment, needs_server

pytestmark = needs_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, Server(tmp_path_factory.mktemp("weed") / "data") as running:
        for name, value in environment(running.address).items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    digest = bucket_trials.write(tmp_path_factory.mktemp("whole") / "run", "alone")
    assert digest is not None
    return digest


@pytest.mark.parametrize("seed", range(10))
def test_a_kill_loses_nothing_acknowledged_and_another_machine_goes_on(
    server: Server, tmp_path: Path, uninterrupted: str, seed: int
) -> None:
    trial = bucket_trials.kill(server, tmp_path / "kill", seed, uninterrupted, of_server=seed in (4, 9))
    assert trial.acknowledged >= 0, "something was acknowledged"
    assert trial.stored >= trial.acknowledged
    assert trial.whole
    workload.tally("kills", 1)


@pytest.mark.parametrize("seed", range(5))
def test_of_two_writers_one_wins_and_the_other_is_told(
    server: Server, tmp_path: Path, uninterrupted: str, seed: int
) -> None:
    race = bucket_trials.race(server, tmp_path / "race", seed, uninterrupted)
    assert race == (1, 1, True)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_ingest_has_committed_whole_versions_and_another_machine_goes_on(
    server: Server, tmp_path: Path, seed: int
) -> None:
    heard, found, after = lake_trials.kill(server, tmp_path, seed, of_server=seed == 2)
    assert found in ([{}, {"set": 1000}] if not heard else [{"set": 1000}])
    assert after == {"set": 1000}


@pytest.mark.parametrize("sets", [("one", "two"), ("one", "one")])
def test_two_machines_that_ingest_at_once_lose_nothing_that_was_acknowledged(
    server: Server, tmp_path: Path, sets: tuple[str, str]
) -> None:
    told, found = lake_trials.race(server.address, tmp_path, len({*sets}), sets)
    assert found == dict.fromkeys(sets, 1000)
    assert told <= 2 - len({*sets}), "other sets are no reason"
