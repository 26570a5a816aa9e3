from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import NotFoundError, UsageError
from twin.goodput.efficiency import statistical_efficiency
from twin.goodput.many_jobs import (
    ApplicationThroughput,
    GpuThroughput,
    Placements,
    application,
    table,
)
from twin.goodput.throughput_model import ThroughputModel

MODEL = ThroughputModel(0.05, 0.002, 0.03, 0.004, 0.2, 0.01, 2.0)
ONE = ApplicationThroughput("one", {"box": GpuThroughput(MODEL, 4, 64, 4, 16)}, 32, 4096)
ROWS = [("box", 1, 1), ("box", 1, 8), ("box", 4, 16), ("other", 1, 1), ("box", 5, 16)]


def test_the_best_of_a_pair_is_that_of_every_batch_tried_alone() -> None:
    noise = np.array([10.0, 1000.0])
    found = table([ONE, ONE], noise, Placements.of_rows(ROWS))

    for job, (gpu, nodes, replicas) in ((0, ROWS[1]), (1, ROWS[1]), (1, ROWS[2])):
        at = ROWS.index((gpu, nodes, replicas))
        tried = []
        for local in range(4, 65):
            for passes in range(1, 5):
                batch = local * passes * replicas
                if 32 <= batch <= 4096:
                    step_s = float(MODEL.step_s(nodes, replicas, local, passes))
                    tried.append(batch / step_s * statistical_efficiency(noise[job], 32, batch))
        assert found.goodput[job, at] == pytest.approx(max(tried), rel=0.01)
        assert found.goodput[job, at] <= max(tried) * (1 + 1e-12)


def test_more_noise_takes_a_larger_batch_and_what_cannot_run_has_no_goodput() -> None:
    found = table([ONE] * 2, np.array([10.0, 1000.0]), Placements.of_rows(ROWS))

    batch = found.local * found.passes * np.array([row[2] for row in ROWS])
    assert (batch[1, :3] > batch[0, :3]).all()
    assert (found.local <= 64).all() and (batch[:, :3] >= 32).all()
    assert (found.goodput[:, 3:] == 0).all() and (found.passes[:, 3:] == 0).all()


def test_mistakes_are_told() -> None:
    with pytest.raises(UsageError, match="noise scale of 0 samples or more"):
        table([ONE], np.array([-1.0]), Placements.of_rows(ROWS))
    with pytest.raises(UsageError, match="2 replicas on 3 nodes"):
        Placements.of_rows([("box", 3, 2)])


@pytest.mark.shared
def test_profiled_applications_are_read_with_every_gpu(shared: Path) -> None:
    profiles = shared / "jobs" / "sia-pollux" / "profiles"
    bert = application(profiles, "bert", ["quad", "dgx-ext"])
    assert (bert.initial, bert.largest, list(bert.by_gpu)) == (12, 384, ["quad", "dgx-ext"])
    rows = Placements.of_rows([("quad", 1, 4), ("quad", 2, 8), ("dgx-ext", 2, 16)])
    found = table([bert], np.array([500.0]), rows)
    assert found.goodput[0, 1] == 0  # two nodes of it were never measured
    assert found.goodput[0, 2] > found.goodput[0, 0] > 0
    with pytest.raises(NotFoundError, match="no profile on dgx-exd; did you mean"):
        application(profiles, "bert", ["dgx-exd"])
    with pytest.raises(NotFoundError, match="it has bert, cifar10, imagenet"):
        application(profiles, "resnet")
