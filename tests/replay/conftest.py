"""What several tests of `replay` look at and none changes."""

from pathlib import Path

import pytest

from replay.training import training_run as training
from replay.training.training_run import TrainingResult
from tests.replay import toys
from tests.worlds import toy_scenario


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingResult]:
    """A store with one finished training of the toy world."""
    store = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        toys.without_lake(patch)
        return store, training.train(store, toy_scenario(), algorithm="toy")
