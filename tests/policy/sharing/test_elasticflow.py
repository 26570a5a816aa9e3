"""ElasticFlow by hand: admission, least shares, growth; curves and the tables that they are read from."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import InputError, UsageError
from ingest.readers.clusters.scaling_tables import is_scaling, scaling_tables
from policy.sharing.elasticflow import sizes_of
from policy.sharing.registry import RECIPES
from twin.queue.jobs import QueueJobs
from twin.sharing import engine
from twin.sharing.changes import FREE, STEADY, ChangeRules
from twin.sharing.curves import SpeedCurve, SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.figures import sharing_figures
from twin.sharing.progress import REFUSED
from twin.sharing.speeds import MeasuredSpeeds

LINEAR = SpeedCurve("linear", np.array([1, 8]), np.array([1.0, 8.0]))
HALF = SpeedCurve("half", np.array([1, 2, 4, 8]), np.array([1.0, 1.5, 2.25, 2.0]))


def played(
    rows: list[tuple[int, int, int]], name: str = "elasticflow", curve: SpeedCurve = LINEAR,
    rules: ChangeRules = FREE,
) -> SharedSchedule:  # fmt: skip
    """Jobs (submission, run on one GPU, deadline) on one node of 8 GPUs."""
    submit, run, deadline = zip(*rows, strict=True)
    jobs = QueueJobs.of_seconds(submit, run, [1] * len(rows), deadline=deadline)
    curves = SpeedCurves.of(jobs.processors, [curve] * len(rows), 8)
    speeds = MeasuredSpeeds(np.zeros(len(rows)), np.zeros((len(rows), 3)), curves)
    world = SharingWorld(jobs, jobs.run_ns, np.full(len(rows), 10**10), 1, 8, rules, speeds)
    return engine.play(world, RECIPES[name].make())


def ends(done: SharedSchedule) -> list[float]:
    return [round(one / 1e9, 3) for one in done.states.ended.tolist()]


def test_a_job_that_cannot_meet_its_deadline_is_refused_and_counts_as_missed() -> None:
    done = played([(0, 800, 101), (0, 800, 90)])
    assert done.states.status[1] == REFUSED
    assert ends(done)[0] == 100
    found = sharing_figures(done)
    assert (found.refused, found.deadlines_met) == (1, 0.5)


def test_a_later_job_is_refused_rather_than_an_admitted_one_missed() -> None:
    assert played([(0, 800, 110), (10, 400, 80)]).states.status[1] == REFUSED
    assert sharing_figures(played([(0, 800, 160), (10, 400, 80)])).deadlines_met == 1


def test_gpus_left_over_go_to_who_scales_and_none_beyond_the_peak() -> None:
    assert ends(played([(0, 800, 10_000)])) == [100]
    assert ends(played([(0, 225, 10_000)], curve=HALF)) == [100]  # 4 GPUs are faster than 8


def test_growing_that_saves_too_little_is_left() -> None:
    rows = [(0, 400, 10_000), (0, 100, 10_000)]
    free, steady = played(rows), played(rows, rules=STEADY)
    assert ends(free)[0] == 62.5  # the other ends at 25; 8 GPUs for what is left
    assert ends(steady)[0] == 100  # saves 37.5 s, but the pause is amortised only after 100


def test_elastic_edf_gives_all_to_the_earliest() -> None:
    assert ends(played([(0, 800, 500), (0, 800, 400)], "edf-elastic")) == [200, 100]


def test_sizes_are_powers_of_two_each_faster_than_the_last() -> None:
    speeds = np.array([0, 100, 150, 160, 225, 226, 227, 228, 200])
    assert sizes_of(speeds).tolist() == [1, 2, 4]
    assert sizes_of(np.array([0, 0, 0, 100])).tolist() == [3]


def test_a_curve_is_interpolated_inside_and_refused_outside() -> None:
    assert HALF.at(3) == pytest.approx(1.875)
    with pytest.raises(UsageError, match="measured on 1 to 8 GPUs, not on 16"):
        HALF.at(16)
    table = SpeedCurves.of(np.array([2, 16]), [HALF, HALF], 16)
    assert table.row.tolist() == [0, -1]
    assert table.speeds(0)[4] == 1_500_000 and table.speeds(0)[9:].max() == 0


def test_tables_are_read_and_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text("global_batch_size,1,2,4,8\n64,1.0,1.5,0,\n128,0.5,nan,1.0,2.0\n")
    assert is_scaling(tmp_path)
    found = scaling_tables(tmp_path)
    assert found["net", 64].gpus == (1, 2)
    assert found["net", 128].rate == (0.5, 1.0, 2.0)
    (tmp_path / "net.csv").write_text("global_batch_size,1,2\n64,fast,1\n")
    with pytest.raises(InputError, match=r"net.csv:2: a batch, size or speed is no number"):
        scaling_tables(tmp_path)
    with pytest.raises(InputError, match="no table of speeds"):
        scaling_tables(tmp_path / "nothing")
