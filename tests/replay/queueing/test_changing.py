"""Schedulers that change runs on logs: Muri's published cells, and what is refused."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.core.errors import UsageError
from ingest.readers import job_logs
from ingest.readers.clusters.training_lists import training_demands
from policy.sharing.registry import RECIPES
from replay.queueing.changing import compare_changing, world_of
from twin.nodes.outage_plan import OutagePlan
from twin.queue.rules import PREDICTSIM
from twin.sharing import engine
from twin.sharing.changes import FREE, MURI, STEADY
from twin.workload.selection import select

EXACT = {"SRTF": "srtf", "SRSF": "srsf", "Tiresias": "tiresias"}
TRACES = ("trace1", "trace1_pr", "trace3", "trace3_pr")


@pytest.mark.shared
@pytest.mark.parametrize("trace", TRACES)
def test_cells_of_muri_come_out_to_every_printed_digit(shared: Path, trace: str) -> None:
    path = shared / "jobs/muri" / f"{trace}.csv"
    log = select(job_logs.read(path), PREDICTSIM, 64)
    world, _ = world_of(log, training_demands(path), MURI, 8, 8, "estimate")
    found = {}
    for published, name in EXACT.items():
        done = engine.play(world, RECIPES[name].make())
        jct = np.sort(done.states.ended - world.jobs.submit_ns)
        found[published, "avg_jct_s"] = jct.mean() / 1e9
        found[published, "makespan_s"] = done.states.ended.max() / 1e9
        found[published, "p99_jct_s"] = jct[int(0.99 * len(jct))] / 1e9
    cells = list(csv.DictReader((shared / "validation/jobs/muri_sim.csv").read_text().splitlines()))
    wanted = {
        (cell["policy"], cell["metric"]): cell["published"]
        for cell in cells
        if cell["trace"] == trace and cell["policy"] in EXACT
    }
    assert len(wanted) == 9
    for cell, printed in wanted.items():
        assert f"{found[cell]:.{len(printed.partition('.')[2])}f}" == printed, cell


def test_schedulers_that_leave_runs_alone_stand_beside(repository: Path) -> None:
    found = compare_changing(repository / "examples/queue.swf", ("easy", "srtf"), rules=STEADY)
    easy, srtf = found.figures["easy"], found.figures["srtf"]
    assert easy.preemptions == easy.changes == 0 and srtf.preemptions > 0
    assert srtf.avg_jct_s < easy.avg_jct_s
    assert any("30 s" in note for note in found.log.notes)


def test_figures_are_written_without_the_dirt_of_floats(repository: Path) -> None:
    (row,) = compare_changing(repository / "examples/queue.swf", ("srtf",), rules=FREE).to_json()["results"]
    for name, value in row.items():
        if isinstance(value, float):
            assert len(str(value).partition(".")[2]) <= 6, name


def test_nodes_may_be_of_several_sizes(repository: Path) -> None:
    log, nodes = repository / "examples/queue.swf", "8 x 8 V100, 2 x 4 V100"
    found = compare_changing(log, ("srtf", "tiresias"), rules=STEADY, nodes=nodes)
    assert found.world.gpus == 72 and found.world.node_gpus == 8
    assert all(one.refused == 0 and one.utilisation > 0 for one in found.figures.values())


def test_jobs_share_the_uplinks_of_their_racks(repository: Path) -> None:
    log, nodes = repository / "examples/stages.csv", "2 x 4 x 8 V100"
    wide, narrow = (
        compare_changing(log, ("fair-links", "crux"), rules=STEADY, nodes=nodes, oversubscription=times)
        for times in (1, 4)
    )
    assert wide.figures["crux"].avg_jct_s == wide.figures["fair-links"].avg_jct_s
    fair, crux = narrow.figures["fair-links"].avg_jct_s, narrow.figures["crux"].avg_jct_s
    assert wide.figures["crux"].avg_jct_s < crux < fair
    assert narrow.to_json()["uplinks"] == [1, 1] and "2 racks" in narrow.log.notes[-1]


def test_drawn_faults_hit_every_scheduler_alike_and_are_called_synthetic(repository: Path) -> None:
    plan = OutagePlan(mtbf_s=100 * 3600, mttr_s=3600, seed=1, checkpoint_interval_s=600)
    found = compare_changing(
        repository / "examples/queue.swf", ("srtf", "tiresias"), rules=STEADY, nodes="10 x 8 V100",
        outages=plan,
    )  # fmt: skip
    said = found.to_json()
    assert said["synthetic_faults"] and "synthetic faults" in found.log.notes[-1]
    srtf, tiresias = found.figures.values()
    assert srtf.restarts > 0 and tiresias.restarts > 0 and srtf.shrinks == 0
    assert 0 < srtf.lost_work_gpu_h < srtf.restarts * 600 * 80 / 3600
    assert srtf.availability == pytest.approx(100 / 101, abs=0.01)


@pytest.mark.parametrize(
    ("policies", "options", "message"),
    [
        (("tiresia",), {}, "did you mean 'tiresias'"),
        (("esy",), {}, "did you mean 'easy'"),
        (("edf-preemptive",), {}, "no job has a deadline"),
        (("easy",), {"nodes": "8 x 8 V100"}, "leaves running jobs alone"),
        (("crux",), {"nodes": "2 x 4 x 8 V100"}, "jobs share no link"),
        (("srtf",), {"nodes": "8 x 8 V100", "oversubscription": 4}, "uplinks of racks"),
        (("srtf",), {"nodes": "2 x 4 x 8 V100", "oversubscription": 4}, "how long it is on the network"),
    ],
)
def test_what_cannot_be_played_is_refused(
    repository: Path, policies: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        compare_changing(repository / "examples/queue.swf", policies, rules=STEADY, **options)
