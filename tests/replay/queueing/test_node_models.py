"""Nodes of several GPU models: speeds from Gavel's throughputs, and what is refused."""

import json
from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.readers.clusters.profiled_runs import RunProfiles
from replay.queueing.changing import compare_changing
from twin.sharing.changes import FREE

NODES, NODES_LARGE = "1 x 1 V100, 1 x 1 K80", "8 x 8 V100, 8 x 8 K80"
KEYS = {"a": "('a', 1)", "b": "('b', 1)", "c": "('c', 1)"}


def made(folder: Path, *kinds: str) -> Path:
    """A list of Gavel with one job of 720 steps each, all submitted at once, and speeds on two GPUs."""
    alone = {KEYS["a"]: {"null": 1.0}, KEYS["b"]: {"null": 2.0}, KEYS["c"]: {"null": 1.0}}
    slow = {KEYS["a"]: {"null": 1.0}, KEYS["b"]: {"null": 0.5}, KEYS["c"]: {"null": 0.0}}
    (folder / "simulation_throughputs.json").write_text(json.dumps({"v100": alone, "k80": slow}))
    lines = [f"{one}\trun\tdata\t-step\t1\t720\t1\t1\t-1\t0" for one in kinds]
    (folder / "list.trace").write_text("\n".join(lines) + "\n")
    return folder / "list.trace"


def test_each_job_goes_to_the_model_that_was_measured_fastest_for_it(tmp_path: Path) -> None:
    found = compare_changing(
        made(tmp_path, "a", "b"), ("gavel", "srtf"), rules=FREE, nodes=NODES, profiles=RunProfiles(tmp_path)
    )
    # b takes 360 s on the V100, a 720 s on either.
    assert found.figures["gavel"].avg_jct_s == (360 + 720) / 2
    assert found.world.kinds is not None and found.world.kinds.speed.tolist() == [
        [10**6] * 2,
        [10**6, 250_000],
    ]


def test_jobs_that_were_not_measured_everywhere_are_left_out_and_told(tmp_path: Path) -> None:
    profiles = RunProfiles(tmp_path)
    found = compare_changing(made(tmp_path, "a", "c"), ("gavel",), rules=FREE, nodes=NODES, profiles=profiles)
    assert found.figures["gavel"].jobs == 1
    assert any("jobs left out: 1, list-2 the first" in note for note in found.log.notes)
    with pytest.raises(UsageError, match=r"no job of list\.trace was measured on each"):
        compare_changing(made(tmp_path, "c"), ("gavel",), rules=FREE, nodes=NODES, profiles=profiles)


def test_unknown_speeds_models_and_sizes_are_refused(tmp_path: Path, repository: Path) -> None:
    path, profiles = made(tmp_path, "a"), RunProfiles(tmp_path)
    with pytest.raises(UsageError, match="Gavel's throughputs"):
        compare_changing(repository / "examples/queue.swf", ("gavel",), rules=FREE, nodes=NODES_LARGE)
    with pytest.raises(UsageError, match="no GPU 'H100'; it has v100, k80"):
        compare_changing(path, ("gavel",), rules=FREE, nodes="1 x 1 V100, 1 x 1 H100", profiles=profiles)
    found = compare_changing(path, ("gavel",), rules=FREE, nodes="1 x 1 V100, 1 x 2 K80", profiles=profiles)
    assert found.figures["gavel"].jobs == 1 and found.world.gpus == 3
    (tmp_path / "simulation_throughputs.json").write_text("[]")
    with pytest.raises((InputError, UsageError), match=r"has no GPU|no object"):
        compare_changing(path, ("gavel",), rules=FREE, nodes=NODES, profiles=profiles)


@pytest.mark.shared
def test_awareness_shortens_the_jobs_of_the_published_list(shared: Path) -> None:
    jobs = shared / "jobs/gavel"
    found = compare_changing(
        jobs / "small_test.trace", ("gavel", "gavel-blind"), rules=FREE, profiles=RunProfiles(jobs),
        nodes="2 x 4 v100, 4 x 4 p100, 6 x 4 k80",
    ).figures  # fmt: skip
    assert found["gavel"].avg_jct_s < found["gavel-blind"].avg_jct_s
