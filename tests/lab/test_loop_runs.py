"""The scenario of a service on the lab's clock, and the degradation of a link."""

import pytest

from ingest.core.errors import UsageError
from lab.loop_runs import Degradation, on_lab_clock
from twin.scenario import prepare as scenarios


def test_times_of_decisions_and_moves_are_those_of_the_lab() -> None:
    scenario = Degradation((2, 0), 0.2, 60.0).on(scenarios.load("lab"), 100.0)
    clocked = on_lab_clock(scenario, 8.0)
    assert clocked.control.period_s == 2.5 and clocked.control.horizons_s[-1] == 37.5
    assert clocked.telemetry.period_s == 0.5 and clocked.wan.stretch == 1 / 8
    assert clocked.moving.restart_s == pytest.approx(11.35 / 8)
    assert clocked.moving.bytes_per_parameter == 14 / 8
    assert clocked.job == scenario.job and not clocked.link_changes
    assert type(scenario).model_validate_json(clocked.model_dump_json()) == clocked


def test_a_link_degrades_from_a_time_on() -> None:
    (change,) = Degradation((2, 0), 0.2, 60.0).on(scenarios.load("lab"), 100.0).link_changes
    assert (change.src, change.dst, change.both_ways) == ("ap-northeast-1", "us-east-1", True)
    assert (change.bandwidth_factor, change.at_s) == (0.2, 160.0)
    with pytest.raises(UsageError, match="site 4: lab has 3"):
        Degradation((0, 3), 0.2, 60.0).on(scenarios.load("lab"), 0.0)
