from dataclasses import replace

import pytest

from ingest.core.errors import UsageError
from lab.comparison import named, three_plans
from lab.miniature import Miniature
from tests.support.worlds import toy_scenario, toy_setup
from twin.pipeline.pipeline import Pipeline
from twin.pipeline.reference_simulator import simulate
from twin.scenario.prepare import PreparedScenario


def small(gpus: int = 1, **changes: object) -> PreparedScenario:
    """Three sites, Llama-2 7B, 2 Gb/s links of 50 ms; sites of one GPU unless told."""
    cluster = toy_scenario().cluster.model_dump()
    cluster["hardware"]["gpus_per_node"] = gpus
    cluster["domains"] = [{"name": f"d{k}", "gpus": gpus} for k in range(3)]
    job = {"global_batch": 4, "micro_batches": [1], "zero": 0, "p2p": "rendezvous"}
    return toy_setup(3, cluster=cluster, **{"job": job, **changes})


def test_operations_last_as_long_as_those_of_the_scenario_in_small() -> None:
    lab = Miniature(small(), time=4.0)
    plan = lab.plan([2, 0, 1], [10, 12, 12])

    told = lab.instruction(plan, at_step=7)

    assert [(stage.site, stage.first, stage.last) for stage in told.stages] == [
        (2, 0, 10), (0, 10, 22), (1, 22, 34)
    ]  # fmt: skip
    times = lab.estimator.pipeline(plan, lab.state(0.0))
    assert times is not None
    assert [stage.forward_s for stage in told.stages] == pytest.approx(times.tf[:, 0] / 4e9)
    assert [stage.backward_s for stage in told.stages] == pytest.approx(times.tb[:, 0] / 4e9)
    assert (told.extra_warmup, told.routes) == (0, ())
    deeper = lab.instruction(replace(plan, extra_warmup=2, routes=((2, 1, 0),)))
    assert (deeper.extra_warmup, deeper.routes) == (2, ((2, 1, 0),))
    assert told.layer_bytes[1] == round(14 * 202_383_360 / lab.scale.bytes)  # 4 h^2 + 3 h f + 2 h parameters


def test_a_message_takes_the_same_share_of_a_step() -> None:
    lab = Miniature(small(), time=4.0)

    assert lab.scale.bytes == 4096 * 4096 * 2 / (64 * 128 * 4)
    assert lab.links()[0, 1].rates_bps == [2e9 * 4 / lab.scale.bytes]
    assert lab.links()[0, 1].delays_s == [0.0125]


def test_the_word_of_a_receive_takes_time_where_it_crosses_a_link() -> None:
    # Two stages, one micro-batch: forward 10, link 5 + 3, forward and backward 10 + 20, back 5 + 3, 20. Each
    # receive is posted at the begin or earlier, but the one of the gradient: at 10, when its sender is busy.
    one = Pipeline.single(
        [10, 10], [20, 20], [5], [3], [5], [3], [0, 0], micro_batches=1, p2p="rendezvous"
    )  # fmt: skip
    assert simulate(one).iteration_ns == simulate(one, announced=True).iteration_ns == 76
    # With a second micro-batch the last stage posts its second receive after its first backward; the word
    # of it takes 3 and waits for the gradient's 5 on the same way.
    two = Pipeline.single(
        [10, 10], [20, 20], [5], [3], [5], [3], [0, 0], micro_batches=2, p2p="rendezvous"
    )  # fmt: skip
    assert simulate(two, announced=True).iteration_ns - simulate(two).iteration_ns == 3 + 5


def test_a_move_is_copied_at_the_rates_that_links_have_meanwhile() -> None:
    lab = Miniature(small(), time=4.0)
    old, new = lab.plan([0, 1, 2], [12, 11, 11]), lab.plan([0, 1, 2], [10, 13, 11])

    found = lab.move(old, new, began_s=1.0)

    moved = 2 * 14 * 202_383_360 / lab.scale.bytes
    assert found.copy_s == pytest.approx(8 * moved / lab.links()[0, 1].rates_bps[0] + 0.0125)
    assert found.restart_s == pytest.approx(11.35 / 4)
    assert lab.instruction(new, 5, old).restart_s == pytest.approx(11.35 / 4)


def test_another_schedule_alone_needs_no_restart() -> None:
    lab = Miniature(small(), time=4.0)
    layers = [12, 11, 11]

    assert lab.restarts(lab.plan(range(3), layers), lab.plan(range(3), layers, "gpipe")) == 0.0


def test_three_plans_hold_all_layers() -> None:
    lab = Miniature(small(), time=4.0)

    assert [sum(share.layers for share in plan.shares) for plan in three_plans(lab)] == [34, 34, 34]
    assert [named(lab, plan) for plan in three_plans(lab)] == [
        "d0 12 > d1 11 > d2 11", "d2 14 > d0 11 > d1 9", "d0 17 > d2 17"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("prepared", "said"),
    [
        (lambda: small(gpus=4), "domain d0 has more than one GPU"),
        (lambda: small(model="gpt3-175b"), "ties its embedding"),
    ],
)
def test_what_a_lab_cannot_stand_for_is_refused(prepared: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Miniature(prepared(), 4.0)  # type: ignore[operator]
