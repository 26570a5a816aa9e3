"""Lists of Sia and Pollux played by goodput: BERT alone, on GPUs whose profiles are small."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import UsageError
from ingest.readers.clusters.profiled_runs import RunProfiles
from replay.queueing import goodput_jobs
from replay.queueing.changing import compare_changing
from replay.queueing.node_models import NodesAsked
from twin.sharing.changes import MURI, PAID

pytestmark = pytest.mark.shared
NODES = "3 x 4 quad, 1 x 8 dgx"
LIST = """name,time,application,num_replicas,batch_size
bert-0,0,bert,2,48
bert-1,60,bert,4,48
ncf-2,90,ncf,1,32768
bert-3,100,bert,4,24
"""


@pytest.fixture(scope="module")
def profiles(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> RunProfiles:
    """Profiles of BERT alone: a fit takes a second or two."""
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "bert").symlink_to((shared / "jobs/sia-pollux/profiles/bert").resolve())
    return RunProfiles(folder)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("list") / "workload.csv"
    path.write_text(LIST)
    return path


@pytest.fixture(scope="module")
def jobs(source: Path, profiles: RunProfiles) -> goodput_jobs.GoodputJobs:
    return goodput_jobs.read(source, profiles, NodesAsked.parse(NODES))


def test_run_times_are_those_of_the_training_on_the_first_model(jobs: goodput_jobs.GoodputJobs) -> None:
    (bert,) = jobs.goodput.applications
    assert len(jobs.log.jobs) == 3 and jobs.log.reasons == {"run time not positive": 1}
    assert jobs.log.jobs.run_ns[0] / 1e9 == pytest.approx(bert.alone_s("quad", 1, 2, 48))
    assert jobs.goodput.batch.tolist() == [48, 48, 24] and set(jobs.pause_ns // 10**9) == {120}
    assert jobs.kinds is not None
    ratio = bert.alone_s("quad", 1, 4, 24) / bert.alone_s("dgx", 1, 4, 24)
    assert jobs.kinds.speed[2] / 1e6 == pytest.approx([1.0, ratio], abs=1e-6)


def test_schedulers_play_the_list_on_nodes_of_two_sizes(source: Path, profiles: RunProfiles) -> None:
    names = ("srtf", "gavel", "pollux", "sia")
    found = compare_changing(source, names, rules=PAID, nodes=NODES, profiles=profiles)
    assert found.world.gpus == 20 and tuple(found.figures) == names
    jct = {name: one.avg_jct_s for name, one in found.figures.items()}
    assert max(jct["gavel"], jct["sia"]) < jct["srtf"]  # srtf does not see that dgx is faster
    alone = found.world.jobs.run_ns.mean() / 1e9
    assert jct["srtf"] == pytest.approx(alone, rel=0.01)  # all on quad, nobody waits
    assert any("pollux and sia choose the batch" in note for note in found.log.notes)


def test_what_does_not_fit_is_refused(source: Path, profiles: RunProfiles) -> None:
    def played(nodes: str, gpu: str | None = None, rules: object = PAID) -> None:
        asked = RunProfiles(profiles.folder, gpu)
        compare_changing(source, ("srtf",), rules=rules, nodes=nodes, profiles=asked)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="GPU 'V100'"):
        played("1 x 4 quad, 1 x 8 V100")
    with pytest.raises(UsageError, match="run times are those on one of quad"):
        played("1 x 4 quad", "dgx")
    with pytest.raises(UsageError, match="restart at every event"):
        played("1 x 4 quad", rules=MURI)


def test_other_lists_and_pools_are_none_of_these(source: Path, profiles: RunProfiles) -> None:
    quad = NodesAsked.parse("1 x 4 quad")
    assert goodput_jobs.fits(source, profiles, quad)
    assert not goodput_jobs.fits(source, profiles, NodesAsked())
    assert not goodput_jobs.fits(source, None, quad)
    assert not goodput_jobs.fits(source, profiles, NodesAsked.parse("1 x 4 A100-80"))
    assert NodesAsked.parse(NODES).sizes is not None and np.all(NodesAsked.parse("2 x 4 quad").each == (4, 4))
