"""Files of outages, row by row, and faults that are drawn as long as jobs run."""

from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.core.units import NS_PER_S
from policy.placement.registry import placement
from policy.queue.registry import recipe
from twin.nodes import outages as outages_module
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.outage_plan import OutagePlan, read
from twin.nodes.outages import NodeOutages, SlowTime
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.jobs import QueueJobs

TWO = NodeCluster.parse("2 x 4 A100")
HEAD = "node,down_s,up_s,kind"


def listed(tmp_path: Path, *rows: str, head: str = HEAD) -> Path:
    path = tmp_path / "outages.csv"
    path.write_text("\n".join((head, *rows)) + "\n", encoding="utf-8")
    return path


def test_a_file_gives_outages_in_the_order_in_which_they_begin(tmp_path: Path) -> None:
    found = read(listed(tmp_path, "1,5.5,9,drain", "0,2,3,fault"), TWO)
    assert found.node.tolist() == [0, 1] and found.drain.tolist() == [False, True]
    assert found.down_ns.tolist() == [2 * NS_PER_S, 5_500_000_000]
    assert found.up_ns.tolist() == [3 * NS_PER_S, 9 * NS_PER_S]
    assert len(read(listed(tmp_path), TWO)) == 0


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2,0,1,fault", "row 2, column node: '2' is none of the nodes 0 to 1"),
        ("-1,0,1,fault", "row 2, column node"),
        ("0,soon,1,fault", "row 2, column down_s: 'soon' is no time"),
        ("0,nan,1,fault", "row 2, column down_s: 'nan' is no time"),
        ("0,0,1e300,fault", "row 2, column up_s: '1e300' is no time"),
        ("0,4,4,fault", "row 2, column up_s: '4' is not after down_s"),
        ("0,0,1,crash", "row 2, column kind: 'crash' is none of fault, drain, slow"),
        ("0,0,1", "row 2: 3 cells, not 4"),
        ("0,0,1,slow", "row 2, column kind: a slow node needs a column speed"),
    ],
)
def test_a_row_that_is_no_outage_is_named(tmp_path: Path, row: str, said: str) -> None:
    path = listed(tmp_path, "0,0,1,fault", row)
    with pytest.raises(InputError, match=said) as error:
        read(path, TWO)
    assert str(error.value).startswith(str(path))


def test_a_slow_node_has_a_speed_and_goes_with_schedulers_that_change_runs(tmp_path: Path) -> None:
    head = HEAD + ",speed"
    found = read(listed(tmp_path, "1,2,9,slow,0.25", "0,3,4,drain,", head=head), TWO)
    assert found.slow == (SlowTime(1, 2 * NS_PER_S, 9 * NS_PER_S, 250_000),) and len(found) == 1
    for speed in ("0", "1", "fast", "nan"):
        with pytest.raises(InputError, match="row 1, column speed"):
            read(listed(tmp_path, f"1,2,9,slow,{speed}", head=head), TWO)
    jobs = QueueJobs.of_seconds([0], [1], [1])
    asked = Demands.of_jobs(TWO, jobs.processors)
    with pytest.raises(UsageError, match=r"node 1 is slow for a time: .* add --changes"):
        simulate_on_nodes(jobs, asked, TWO, recipe("fcfs"), placement("first-fit"), outages=found)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its header has no up_s; it needs node, down_s, up_s, kind"):
        read(listed(tmp_path, head="node,down_s,kind"), TWO)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "none.csv", TWO)


def test_faults_are_drawn_until_the_last_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = QueueJobs.of_seconds([0] * 40, [100] * 40, [8] * 40)
    demands, asked = Demands.of_jobs(TWO, jobs.processors), list[int]()

    def played(*, outages: NodeOutages, checkpoint_interval_ns: int) -> NodeSchedule:
        asked.append(len(outages))
        return simulate_on_nodes(
            jobs, demands, TWO, recipe("fcfs"), placement("first-fit"), outages=outages,
            checkpoint_interval_ns=checkpoint_interval_ns,
        )  # fmt: skip

    done = OutagePlan(mtbf_s=500, mttr_s=50, seed=3, checkpoint_interval_s=10).play(TWO, jobs, played)

    assert len(asked) > 1 and asked == sorted(asked)
    last = int(done.end_ns.max())
    assert done.outages.down_ns.max() > last - 2000 * NS_PER_S  # faults go on to the end
    assert len(done.broken) > 0 and (done.broken.kept_ns % (10 * NS_PER_S) == 0).all()
    monkeypatch.setattr(outages_module, "MOST_OUTAGES", 1000)
    with pytest.raises(UsageError, match="jobs are ended again and again"):
        OutagePlan(mtbf_s=0.5, mttr_s=1).play(TWO, jobs, played)  # no run of 100 s lasts
