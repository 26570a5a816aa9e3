"""A run is executed again with the alarms of its time.

In older logs an alarm came at every sample of a link that had settled away from its mean.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay.audit import audit, rerun
from replay.log.run_log import RunReader
from replay.run import runner, whatif
from replay.store import run_index
from tests.support.worlds import toy_scenario, toy_wan
from twin.filters.link_filter import AlarmRule, LinkParameters
from twin.filters.ou_process import OuParameters
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, Scenario, assemble

QUICK = {"telemetry": {"period_s": 30, "delay_s": 1, "noise": 0.03}, "control": {"period_s": 600}}


def world_of_time(monkeypatch: pytest.MonkeyPatch, rule: AlarmRule) -> None:
    """From now on worlds are made with this rule: one link falls from 3 to 1.48 Gb/s and stays there, with
    filters that know links that are back within half a minute."""

    def prepare(scenario: Scenario, store: Path, **_: Any) -> PreparedScenario:
        wan = toy_wan(bps=3e9, seconds=3600, steps={(0, 1): [(600.0, 1.48e9)]})
        links = np.log(np.full(6, 3e9)), np.log(np.full(6, 0.05))
        moving, still = (OuParameters.of(mu, tau_s=30, sd=0.05, r=1e-4) for mu in links)
        stays = OuParameters.of(links[0], tau_s=1e13, sd=2e4, r=1e-4)
        setup = assemble(scenario, wan, window="all", filters=LinkParameters(moving, still, stays))
        return replace(setup, alarm_rule=rule)

    monkeypatch.setattr(scenarios, "prepare", prepare)


def run(store: Path) -> str:
    scenario = toy_scenario(**QUICK)
    return runner.run(store, policy="static", scenario=scenario).run_id


def alarms(store: Path, run_id: str) -> int:
    events = RunReader(run_index.folder(store, run_id)).events()
    return sum("alarm" in event.payload["reasons"] for event in events if event.type == "triggered")


def test_a_new_run_has_one_alarm_and_says_by_which_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world_of_time(monkeypatch, "unforecast")
    made = run(tmp_path)
    assert alarms(tmp_path, made) == 1
    assert RunReader(run_index.folder(tmp_path, made)).header()["alarm_rule"] == "unforecast"
    assert audit.audit(tmp_path, made).ok


def test_a_run_of_the_old_rule_is_audited_and_asked_what_if_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world_of_time(monkeypatch, "restart")
    old = run(tmp_path)
    assert alarms(tmp_path, old) > 50
    assert "alarm_rule" not in RunReader(run_index.folder(tmp_path, old)).header(), "as old logs are"
    world_of_time(monkeypatch, "unforecast")
    report = audit.audit(tmp_path, old)
    assert report.ok, report.findings
    assert rerun.recompute(tmp_path, old).equal
    asked = whatif.what_if(tmp_path, old, policy="greedy", from_decision=20)
    assert "alarm_rule" not in RunReader(run_index.folder(tmp_path, asked.run_id)).header()
    assert audit.audit(tmp_path, asked.run_id).ok
