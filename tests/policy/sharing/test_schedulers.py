"""Parts of schedulers that share: pairs, periods of interleaved stages, who runs beside whom."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.sharing.matching import paired_by_kind
from policy.sharing.registry import RECIPES, check_known
from policy.sharing.tiresias import gittins
from twin.queue.jobs import Float, QueueJobs
from twin.sharing import engine
from twin.sharing.changes import FREE
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.speeds import LONGER, MeasuredSpeeds, iterations_below, period

STORAGE, GPU = (90.0, 10.0, 0.0), (10.0, 90.0, 0.0)
"""Stages of two jobs that hardly disturb each other."""


def shared(
    name: str, run_s: list[int], stages: list[tuple[float, ...]], *, gpus: int = 8,
    priority: list[int] | None = None,
) -> SharedSchedule:  # fmt: skip
    """Jobs of 8 GPUs submitted at once."""
    jobs = QueueJobs.of_seconds([0] * len(run_s), run_s, [8] * len(run_s), priority=priority)
    table = np.array(stages)
    speeds = MeasuredSpeeds(table.sum(axis=1), table, SpeedCurves.rigid(jobs.processors))
    world = SharingWorld(jobs, jobs.run_ns, np.full(len(jobs), 10**10), 1, gpus, FREE, speeds)
    return engine.play(world, RECIPES[name].make())


def ends(done: SharedSchedule) -> list[float]:
    return [round(one / 1e9, 3) for one in done.states.ended.tolist()]


def test_learned_orders_are_known_beside_schedulers_that_change_runs() -> None:
    check_known(["learned", "saf+easy", "srtf"])
    with pytest.raises(UsageError, match="unknown policy 'lerned'"):
        check_known(["lerned"])


def test_two_jobs_of_different_stages_take_the_longer_stage_each() -> None:
    assert period((STORAGE, GPU)) == 100  # 90 beside 90, then 10 beside 10
    assert period((GPU, GPU)) == 180
    assert period((STORAGE,)) == 100


def test_pairs_weigh_nearly_as_much_as_the_best() -> None:
    random, shares = np.random.default_rng(7), []
    for _ in range(150):
        kinds = random.integers(0, 4, random.integers(2, 8)).tolist()
        weight = random.uniform(0.1, 1, (4, 4))
        weight += weight.T

        def between(a: int, b: int, weight: Float = weight) -> float:
            return float(weight[a, b])

        pairs = paired_by_kind(kinds, between)
        used = [one for pair in pairs for one in pair]
        assert len(set(used)) == len(used)
        found = sum(between(kinds[a], kinds[b]) for a, b in pairs)
        shares.append(found / heaviest(kinds, between))
    assert np.mean(shares) > 0.97 and min(shares) > 0.75


def heaviest(kinds: list[int], between: Callable[[int, int], float]) -> float:
    """The weight of the best pairs, all of them tried."""
    return max(
        (
            between(kinds[a], kinds[b])
            + heaviest([one for at, one in enumerate(kinds) if at not in (a, b)], between)
            for a, b in combinations(range(len(kinds)), 2)
        ),
        default=0.0,
    )


def test_muri_interleaves_where_together_is_faster_than_one_after_the_other() -> None:
    together = period((STORAGE, GPU)) * LONGER[1] / 100
    assert (
        ends(shared("muri-s", [100, 100], [STORAGE, GPU]))
        == pytest.approx([min(100 * together, 200)] * 2, abs=1)
        or together > 2
    )
    assert ends(shared("muri-s", [100, 200], [GPU, GPU])) == [100, 300]


def test_jobs_without_stages_never_share_under_muri() -> None:
    assert ends(shared("muri-l", [100, 100], [(0.0,) * 3] * 2)) == [100, 200]


def test_antman_gives_the_guaranteed_job_all_and_the_other_what_is_left() -> None:
    done = shared("antman", [100, 100], [STORAGE, STORAGE], priority=[0, 1])
    assert ends(done)[0] == 100
    # Storage is idle for 10 of the leader's 100, the other needs it for 90: nine iterations pass, then its
    # GPU stage finds room in a tenth.
    assert iterations_below(STORAGE, STORAGE) == 10
    assert ends(done)[1] == pytest.approx(100 + 90, abs=0.1)
    assert iterations_below(GPU, STORAGE) == 2


def test_antman_takes_gpus_back_from_an_opportunistic_job() -> None:
    jobs = QueueJobs.of_seconds([0, 50], [100, 100], [8, 8], priority=[1, 0])
    table = np.array([GPU, GPU])
    speeds = MeasuredSpeeds(table.sum(axis=1), table, SpeedCurves.rigid(jobs.processors))
    world = SharingWorld(jobs, jobs.run_ns, np.full(2, 10**10), 1, 8, FREE, speeds)
    done = engine.play(world, RECIPES["antman"].make())
    assert ends(done)[1] == 150 and ends(done)[0] > 150


def test_the_gittins_index_is_the_chance_to_end_over_the_service_it_takes() -> None:
    services = np.array([100.0] * 5 + [900.0] * 5)
    found = gittins(services, np.array([0.0, 100.0, 950.0]), 200)
    # Half end within 200 after 100 each, the others take 200: 0.5 / 150. None of the others ends by 300.
    assert found == pytest.approx([0.5 / 150, 0, 0])
    assert gittins(services, np.array([800.0]), 200) == pytest.approx([1 / 100])
    assert gittins(services[:9], np.array([0.0]), 200) == pytest.approx([0])


def test_gandiva_lets_all_run_in_turns() -> None:
    done = shared("gandiva", [100, 100], [GPU, GPU])
    assert (done.states.first == 0).all()
    assert ends(done) == pytest.approx([200 / 0.98] * 2, abs=0.1)


def test_gandiva_moves_a_job_that_shares_to_free_gpus() -> None:
    done = shared("gandiva", [100, 300, 300], [GPU] * 3, gpus=16)
    assert (done.states.first == 0).all()
    assert ends(done)[1] < 500


def test_lucid_packs_mild_pairs_alone_and_preempts_nobody() -> None:
    mild = (20.0, 20.0, 0.0)
    done = shared("lucid", [100, 100], [mild, GPU])
    assert done.states.preempted.sum() == 0
    assert ends(shared("lucid", [100, 200], [GPU, GPU])) == [100, 300]
