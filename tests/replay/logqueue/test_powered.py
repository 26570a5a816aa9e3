"""Schedulers with the power of their site, on the log that ships."""

from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from replay.logqueue.comparison import compare
from replay.logqueue.on_nodes import compare_on_nodes
from replay.logqueue.powered import compare_on_nodes_with_power, compare_with_power
from twin.power.accounts import totals
from twin.power.powered_queue import PowerChoices
from twin.power.signals import CARBON, constant
from twin.power.site_power import PowerModel

MODEL = PowerModel.of_watts("test", 50, 350)


def test_without_limits_the_schedule_is_that_of_the_comparison(repository: Path) -> None:
    log = repository / "examples/queue.swf"
    plain = compare(log, ["easy", "saf+easy"])
    found = compare_with_power(log, PowerChoices(MODEL), ["easy", "saf+easy"], owner="user")
    assert {one.policy: one.queue for one in found.results} == plain.figures
    for one in found.results:
        assert totals(one.ledger).energy_pj == one.power.exact["energy_pj"]


def test_a_cap_stands_beside_the_queue_without_it(repository: Path) -> None:
    choices = PowerChoices(MODEL, cap_w=25_000, carbon=constant(CARBON, 400))
    found = compare_with_power(
        repository / "examples/queue.swf", choices, ["easy"], processors=96, owner="group"
    )
    free, capped = found.results
    assert (free.limited, capped.limited) == (False, True)
    assert capped.power.peak_kw <= 25 < free.power.peak_kw
    assert capped.queue.avg_wait_s > free.queue.avg_wait_s
    assert totals(capped.ledger).carbon == capped.power.exact["carbon_pj_ug_per_kwh"]
    said = found.to_json()
    assert said["power_cap_w"] == 25_000 and len(said["results"][1]["ledger"]) == len(capped.ledger)


def test_a_group_of_jobs_without_one_is_unknown(repository: Path) -> None:
    log = repository / "examples/queue.swf"
    found = compare_with_power(log, PowerChoices(MODEL), ["fcfs"], owner="group")
    assert "unknown" in {one.name for one in found.results[0].ledger}


def test_an_unknown_scheduler_is_refused(repository: Path) -> None:
    with pytest.raises(UsageError, match="unknown policy"):
        compare_with_power(repository / "examples/queue.swf", PowerChoices(MODEL), ["esy"])


def test_on_nodes_the_accounts_sum_to_the_site_and_limits_are_refused(repository: Path) -> None:
    log, nodes = repository / "examples/queue.swf", "6 x 8 A100-80, 4 x 8 V100-32"
    choices = PowerChoices(MODEL, carbon=constant(CARBON, 400))
    found = compare_on_nodes_with_power(log, nodes, choices, ["easy"], ["best-fit", "spread"], owner="group")
    assert [one.policy for one in found.results] == ["easy, best-fit", "easy, spread"]
    for one in found.results:
        assert totals(one.ledger).carbon == one.power.exact["carbon_pj_ug_per_kwh"]
    placed = compare_on_nodes(log, nodes, ["easy"], ["spread"])
    assert found.results[1].queue.avg_wait_s == placed.figures["easy", "spread"].of_pool.avg_wait_s
    with pytest.raises(UsageError, match="kept on one pool"):
        compare_on_nodes_with_power(log, nodes, PowerChoices(MODEL, cap_w=9e3), ["easy"])
