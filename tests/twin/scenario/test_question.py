"""A scenario from a few words: model, sites, links; what is missing or unknown is told."""

from itertools import permutations
from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from ingest.pipeline.ingest import ingest
from twin.scenario import cluster_and_jobs
from twin.scenario.question import Site, parse_sites, question

SITES = "paris: 16 x A100-80, berlin: 12x h100"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    rows = [
        f"2024-01-01T0{hour}:00:00Z,{src},{dst},2e9\n"
        for src, dst in permutations(["paris", "x"], 2)
        for hour in (0, 1)
    ]
    (folder / "links.csv").write_text("ts,src,dst,bandwidth_bps\n" + "".join(rows))
    ingest([folder], tmp_path / "store")
    return tmp_path / "store"


def test_words_become_a_cluster_of_unlike_sites(store: Path) -> None:
    asked = question(store, "Llama-3-70B", SITES, "small")
    made = cluster_and_jobs.cluster(asked.scenario.cluster, None)
    first, second = made.domains
    assert (first.name, first.gpu.name, first.gpus, first.gpus_per_node) == ("paris", "A100-80", 16, 8)
    assert (second.name, second.gpu.name, second.gpus, second.gpus_per_node) == ("berlin", "H100", 12, 4)
    assert (first.usd_per_gpu_hour, second.usd_per_gpu_hour) == (5.07, 12.29)
    assert second.inter_node_bps == 400e9
    assert asked.scenario.wan.sites == {"berlin": "x"}
    assert asked.scenario.wan.default_rtt_s == 0.1
    assert cluster_and_jobs.job(asked.scenario).tokens_per_iteration == 786_432
    assert any("berlin = x (in order of nodes)" in line for line in asked.assumed)
    assert any("96 sequences of 8192 tokens" in line for line in asked.assumed)
    assert question(store, "llama3-70b", SITES, "small", batch=64).scenario.job.global_batch == 64


def test_names_of_sites_may_hold_colons() -> None:
    assert parse_sites("aws:eu-west-1: 8 x L4; b: 4 × T4") == [
        Site("aws:eu-west-1", 8, "L4"),
        Site("b", 4, "T4"),
    ]


@pytest.mark.parametrize(
    ("sites", "told"),
    [
        ("paris: 16 x A100-80", "links join two or more sites"),
        ("paris: 16 x A100-80, berlin", "'berlin' is no `name: number x GPU`"),
        ("paris: 0 x A100-80, berlin: 8 x H100", "'paris' has no GPUs"),
        ("paris: 8 x H100, paris: 8 x H100", "'paris' is named twice"),
        ("paris: 8 x H1000, berlin: 8 x H100", "paris: GPU model 'H1000'.*nearest: H100.*cluster.gpu_models"),
    ],
)
def test_sites_that_cannot_be_are_told(sites: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_sites(sites)


def test_a_missing_word_and_an_unknown_model_are_told(store: Path) -> None:
    with pytest.raises(UsageError, match="--sites, --links missing"):
        question(store, "llama3-70b", None, None)
    with pytest.raises(UsageError, match=r"'lama-3-70b' is not known; nearest: llama3-70b.*twin estimate"):
        question(store, "lama-3-70b", SITES, "small")
