"""`twin queue --nodes` from files, and a published run of FGD's cluster."""

from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from replay.logqueue.filling_published import FIGURES, filled_runs
from replay.logqueue.on_nodes import cluster_named, compare_on_nodes
from tests.support import queue_log
from twin.queue.rules import RLSCHEDULER

NODES = "6 x 8 A100-80, 4 x 4 V100"
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"


def test_schedulers_and_placements_get_the_same_jobs() -> None:
    found = compare_on_nodes(queue_log.TARGET, NODES, ["easy"], ["packing", "spread"]).to_json()
    names = [(one["policy"], one["placement"]) for one in found["results"]]
    assert names == [("easy", "packing"), ("easy", "spread")]
    assert (found["schema"], found["gpus"]) == ("twin.queue/1", 64)
    assert found["gpu_models"] == {"A100-80": 48, "V100": 16}
    assert found["rejected_by_reason"] == {"fits on no nodes of the cluster": 12}
    packed, spread = found["results"]
    assert packed["jobs"] == spread["jobs"] == 388 and packed["nodes_per_gang"] < spread["nodes_per_gang"]
    assert 0 < packed["fragmentation"] < spread["fragmentation"] < 1


def test_a_rack_is_waited_for() -> None:
    found = compare_on_nodes(
        queue_log.TARGET, "4 x 2 x 8 A100-80", ["easy"], ["best-fit", "rack", "rack-first"]
    )
    anywhere, waits, first = found.figures.values()
    means = [one.racks_per_gang for one in (anywhere, first, waits)]
    assert all(means) and means == sorted(means, reverse=True) and means[0] != means[2]
    assert waits.of_pool.avg_wait_s > anywhere.of_pool.avg_wait_s
    assert "in 4 racks" in " ".join(found.log.notes)


def test_pods_that_cannot_run_are_named_and_the_others_go_on(tmp_path: Path) -> None:
    rows = (
        "a,1000,64,1,500,,0,10,0", "b,1000,64,1,1000,V100,1,9,2", "c,1000,64,16,1000,,1,9,2",
        "d,0,0,0,0,,1,,", "e,0,0,1,1000,A10,1,5,2",
    )  # fmt: skip
    (tmp_path / "pods.csv").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    found = compare_on_nodes(tmp_path / "pods.csv", "1 x 8 V100M16, 1 x 2 A10", ["fcfs"])
    assert [one.of_pool.jobs for one in found.figures.values()] == [2]
    assert found.log.reasons == {
        "GPU model 'V100' is not in the cluster; did you mean V100M16?": 1,
        "fits on no nodes of the cluster": 1,
        "never started, so its run time is not known": 1,
    }
    with pytest.raises(UsageError, match="rules rlscheduler read the Standard"):
        compare_on_nodes(tmp_path / "pods.csv", "1 x 8 V100M16", rules=RLSCHEDULER)


def test_pods_without_times_are_no_queue(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\n", encoding="utf-8"
    )
    with pytest.raises(UsageError, match="pods without times are an order of arrival"):
        compare_on_nodes(tmp_path / "pods.csv", NODES)


def test_nodes_are_words_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,9,9,0,\nn1,8000,64,2,P100\nn2,8,64,-1,T4\n", encoding="utf-8"
    )
    cluster, notes = cluster_named(str(path))
    assert (cluster.total_gpus, cluster.models, cluster.cpu_milli.tolist()) == (2, ("P100",), [8000])
    assert notes[0] == "1 nodes of nodes.csv have no GPUs and are left out (first: row 1)"
    assert "row 3" in notes[1]
    with pytest.raises(InputError, match="no such file"):
        cluster_named(str(tmp_path / "other.csv"))
    with pytest.raises(UsageError, match="is no group of nodes"):
        cluster_named(" ")


@pytest.mark.shared
def test_a_published_run_comes_out_percent_by_percent(shared: Path) -> None:
    for run in filled_runs(shared, ["05-BestFit", "06-FGD"], [42]):
        assert [run.equal(figure) for figure in FIGURES] == [131, 131], (run.workload, run.policy)
