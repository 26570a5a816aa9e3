"""Kept power of a queue: steps and accounts of SQL sum to the site exactly, the audit makes them again."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import UsageError
from replay.audit import rerun
from replay.audit.audit import audit
from replay.logqueue import logged_power, whatif
from replay.logqueue.powered import PoweredComparison, compare_with_power
from replay.sql.query import query
from tests.support import queue_log
from twin.power.conversion import ConversionChain, Overhead
from twin.power.powered_queue import PowerChoices
from twin.power.signals import CARBON, PRICE, constant, of_samples
from twin.power.site_power import PowerModel

HOUR_NS = 3600 * 10**9
HOURLY = of_samples(
    CARBON, "here", np.arange(3000) * HOUR_NS, 300 + 100 * np.sin(np.arange(3000) / 4), None
)  # fmt: skip
MODEL = PowerModel.of_watts("test", 50, 350, ConversionChain((Overhead("PUE", 1.17),)))
CHOICES = PowerChoices(MODEL, carbon=HOURLY, price=constant(PRICE, 90))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("power")


@pytest.fixture(scope="module")
def kept(store: Path) -> PoweredComparison:
    return compare_with_power(queue_log.TARGET, CHOICES, ["easy"], owner="user", keep=store)


def test_the_ledger_of_sql_is_that_of_the_command_and_sums_to_the_site(
    store: Path, kept: PoweredComparison
) -> None:
    [one] = kept.results
    rows = query(store, f"select * from ledger where run = '{one.run}' order by energy_pj desc").to_pylist()
    ledger = sorted(one.ledger, key=lambda account: -account.energy_pj)
    assert [(row["owner"], row["jobs"]) for row in rows] == [(two.name, two.jobs) for two in ledger]
    assert [int(row["energy_pj"]) for row in rows] == [two.energy_pj for two in ledger]
    steps = query(store, f"select sum(energy_pj) as pj from site_power where run = '{one.run}'").to_pylist()
    assert int(steps[0]["pj"]) == one.power.exact["energy_pj"] == sum(two.energy_pj for two in ledger)
    for column, amount in (("gpu_ns", "gpu_ns"), ("carbon_exact", "carbon"), ("cost_exact", "cost")):
        assert [int(row[column]) for row in rows] == [getattr(two, amount) for two in ledger]
    sums = "select sum(carbon_exact) as carbon, sum(cost_exact) as cost, sum(gpu_ns) as gpu_ns from ledger"
    [found] = query(store, f"{sums} where run = '{one.run}'").to_pylist()
    assert int(found["carbon"]) == one.power.exact["carbon_pj_ug_per_kwh"]
    assert int(found["cost"]) == one.power.exact["cost_pj_uusd_per_mwh"]
    jobs = kept.log.jobs
    assert int(found["gpu_ns"]) == int((jobs.processors * jobs.run_ns).sum())
    assert one.power.carbon_kg is not None
    assert sum(row["carbon_g"] for row in rows) == pytest.approx(1000 * one.power.carbon_kg, rel=1e-12)
    assert sum(row["cost_usd"] for row in rows) == pytest.approx(one.power.cost_usd, rel=1e-12)


def test_the_audit_makes_power_and_accounts_again(store: Path, kept: PoweredComparison) -> None:
    run_id = kept.results[0].run
    assert run_id is not None and audit(store, run_id).ok
    assert rerun.recompute(store, run_id).equal
    other = whatif.what_if(store, run_id, "saf").run_id
    owners = query(store, f"select count(*) as n from ledger where run = '{other}'").to_pylist()[0]["n"]
    assert owners == len(kept.results[0].ledger)


def test_a_header_holds_the_model_and_the_signals_whole() -> None:
    choices = PowerChoices(MODEL.with_supplies(64, ((0.0, 0.8), (1.0, 0.95))), carbon=HOURLY)
    again = logged_power.from_json(logged_power.to_json(choices))
    assert again.model == choices.model and again.price is None and again.carbon is not None
    assert np.array_equal(again.carbon.series.value, HOURLY.series.value)
    assert (again.carbon.ends, again.carbon.series.end_ns) == (HOURLY.ends, HOURLY.series.end_ns)


def test_limits_are_not_kept(store: Path) -> None:
    with pytest.raises(UsageError, match="--keep goes without --power-cap"):
        compare_with_power(queue_log.TARGET, PowerChoices(MODEL, cap_w=30e3), ["easy"], keep=store)


def test_accounts_of_groups_are_kept_and_audited(store: Path, tmp_path: Path) -> None:
    log = tmp_path / "groups.swf"
    log.write_text(
        "; MaxProcs: 8\n"
        + "".join(
            f"{job} {10 * job} -1 {60 + job} 4 -1 -1 4 90 -1 1 {job} {job % 3} -1 -1 -1 -1 -1\n"
            for job in range(1, 9)
        )
    )
    found = compare_with_power(log, CHOICES, ["easy"], owner="group", keep=store)
    (result,) = found.results
    assert result.run is not None and audit(store, result.run).ok
    assert {one.name for one in result.ledger} >= {"0", "1", "2"}
    rows = query(store, f"select owner, jobs, energy_pj from ledger where run = '{result.run}'").to_pylist()
    assert {(row["owner"], row["jobs"], int(row["energy_pj"])) for row in rows} == {
        (one.name, one.jobs, one.energy_pj) for one in result.ledger
    }
    assert rerun.recompute(store, result.run).equal
