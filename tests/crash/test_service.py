"""kill -9 of a service under load: a client that remembers finds all that was acknowledged, nothing twice."""

import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.support.crash_workload import EFFORT
from tests.support.service_trials import RememberingClient, check_log
from tests.support.serving import service, without_lake
from tests.support.tally import tally

KILLS = 2 * EFFORT
LONGEST_S = 0.3


def test_nothing_acknowledged_is_lost_and_nothing_is_decided_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, chance = RememberingClient(), random.Random(5)
    for kill in range(KILLS):
        process, address = service(tmp_path)

        def killed(process: BaseProcess = process) -> None:
            time.sleep(chance.uniform(0, LONGEST_S))
            process.kill()

        client.load(address, str(kill), after=killed)
        process.join()
    tally("service kills", KILLS)
    process, address = service(tmp_path)
    assert client.batches and client.decisions
    client.send_again(address)
    process.terminate()
    process.join()
    assert process.exitcode == 0
    without_lake(monkeypatch)
    check_log(tmp_path, client)
