"""What several tests of `replay` look at and none changes."""

from pathlib import Path

import pytest

from replay.training import train as training_run
from replay.training.train import TrainingResult
from tests.support import toys
from tests.support.worlds import toy_scenario


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingResult]:
    """A store with one finished training of the toy world."""
    store = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        toys.without_lake(patch)
        return store, training_run.train(store, toy_scenario(), algorithm="toy")
