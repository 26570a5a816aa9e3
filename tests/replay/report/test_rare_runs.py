"""Pages of runs that are not the usual ones: a link that stays down, plans with detours, replicas."""

from pathlib import Path
from types import SimpleNamespace as Found
from typing import Any

import pytest

from replay.log.run_log import RunReader, RunWriter
from replay.metrics.cost_time_points import CostTimePoint
from replay.report import run_comparison, time_breakdown
from replay.report.cost_model import CostModelReading
from replay.report.drawing.section import Section
from replay.report.run_data import RunData, fold_run
from tests.support.histories import history, plan
from twin.core.plan_text import plan_text

NAMES = ("oslo", "guizhou", "shanghai")


def html(section: Section | None) -> str:
    assert section is not None
    return str(section.html)


@pytest.mark.parametrize(
    ("fields", "way"),
    [
        (
            {},
            "oslo: 20 layers (tp 1, pp 2) > guizhou: 14 layers (tp 1, pp 2), dp 1, "
            "16 micro-batches of 1, 1f1b",
        ),
        ({"schedule": "interleaved", "chunks": 2}, "16 micro-batches of 1, interleaved of 2 chunks"),
        (
            {"sync": {"inner_steps": 64}},
            "oslo: 20 layers (tp 1, pp 2) | guizhou: 14 layers (tp 1, pp 2), dp 1",
        ),
        ({"sync": {"inner_steps": 64}}, "replicas averaged every 64 steps"),
        ({"routes": [[0, 2, 1], [1, 2, 0]]}, "oslo to guizhou via shanghai, guizhou to oslo via shanghai"),
    ],
)
def test_a_plan_in_one_line_tells_what_is_not_usual(fields: dict[str, Any], way: str) -> None:
    line = plan_text({**plan(), **fields}, NAMES)
    assert way in line
    assert (" > " in line) == ("sync" not in fields) and ("via" in line) == ("routes" in fields)


def test_a_link_that_stays_down_is_down_until_the_end(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as log:
        for sim_ns, kind, payload, wall in history(1):
            if kind != "link_restored":
                log.append(sim_ns, kind, payload, wall=wall)
        log.append(400 * 10**9, "gpu_repaired", {"domain": 2, "gpus": 1, "free": 4})
    run, _ = fold_run(RunReader(tmp_path / "run").events())
    assert run.outages == [((0, 1), 300.0, 400.0)]


def test_the_rest_of_the_binding_cycles_share_a_lane() -> None:
    held = [f"d{k % 3}: stage {k}" for k in range(time_breakdown.BINDINGS + 2)]
    readings = [CostModelReading(100.0 * k, text, 0.3, 0.1, 0.1) for k, text in enumerate(held)]
    run = RunData(end_s=100.0 * len(held))
    run.header = {"scenario": {"cluster": {"domains": [{"name": name} for name in NAMES]}}}
    text = html(time_breakdown.binding(run, readings))
    assert text.count("12.5") > time_breakdown.BINDINGS and "all others, 2" in text and "25" in text
    few = html(time_breakdown.binding(run, readings[: time_breakdown.BINDINGS]))
    assert "all others" not in few


def test_marks_that_lie_together_share_a_label() -> None:
    points = [CostTimePoint("a", "mpc", (), 1e-4, 1e-6), CostTimePoint("b", "greedy", (), 1.001e-4, 1.001e-6)]
    apart = CostTimePoint("c", "static", (), 2e-4, 2e-6)
    text = html(run_comparison.front([*points, apart], "a"))
    assert text.count('class="name"') == 2
    assert "mpc</span>, <span" in text.replace("\n", "")


def test_policies_are_compared_without_a_bound_too() -> None:
    row = Found(policy="mpc", run_id=None, kpis=None, problem="needs <more> memory", reduction_vs_single=None)
    bound = Found(
        tokens=1e6, exact=True, utilisation=0.5, egress_usd=1.0, timeline=((0, None), (1, None))
    )  # fmt: skip
    result = Found(
        rows=[row], bound=None, wall_s=3600.0, window="test", dataset="d", scenario="s", note="", seed=0
    )  # fmt: skip
    alone = html(run_comparison.policies(result, "run"))  # type: ignore[arg-type]
    assert "needs &lt;more&gt; memory" in alone and 'class="bound"' not in alone
    result.bound = bound
    beside = html(run_comparison.policies(result, "run"))  # type: ignore[arg-type]
    assert 'class="bound"' in beside
