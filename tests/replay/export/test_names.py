"""Names of sites stay apart in every target, and strings of manifests stay strings under YAML 1.1."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ingest.core.errors import UsageError
from replay.export import rank_map, registry, writing, yaml_text
from replay.export.planned_job import PlannedJob
from tests.support.planned_jobs import pipeline, tri
from twin.core.plan import Plan, Share, Sync
from twin.estimation.estimator import Estimator

SITES = {
    "no Latin letters": ("site1", "北京", "上海"),
    "a number that is taken": ("site2", "1", "site1"),
    "case alone": ("US-East", "us-east", "us east"),
    "one beginning": tuple(f"a-region-with-a-rather-long-name-{k}" for k in "abc"),
    "the next number": ("A", "a", "a-2"),
    "words of YAML": ("y", "n", "on"),
    "numbers of YAML": ("1e3", "0x1F", "1_000"),
    "a node of another": ("a", "a-node0", "a-node0-node0"),
}


def named(names: tuple[str, ...], plan: Plan, name: str = "tri-7b") -> PlannedJob:
    job = tri(plan)
    cluster = job.estimator.cluster
    domains = tuple(replace(domain, name=own) for domain, own in zip(cluster.domains, names, strict=True))
    changed = Estimator(replace(cluster, domains=domains), job.job)
    return replace(job, estimator=changed, name=name)


def three_sites() -> Plan:
    return pipeline((2, 8, 2, 1), (0, 12, 2, 1), (1, 14, 2, 1), dp=2, micro_batches=16)


def replicas() -> Plan:
    shares = tuple(Share(k, 34, 2, 1, (0, 1, 2, 3)) for k in range(3))
    return Plan(shares, 2, 1, 8, zero=1, sync=Sync(50, 4.0))


@pytest.mark.parametrize("kind", SITES)
@pytest.mark.parametrize("target", registry.TARGETS)
def test_every_target_keeps_sites_apart_and_says_what_is_renamed(target: str, kind: str) -> None:
    names = SITES[kind]
    job = named(names, replicas() if target == "torchft" else three_sites())
    found = writing.export(registry.target(target), job, Path("unused"), nearest=True)
    ours = rank_map.sites(job)
    assert len({*ours}) == 3 and all(len(name) <= rank_map.MAX_NAME for name in ours)
    assert all(name.replace("-", "").isalnum() and name.isascii() and name[0].isalpha() for name in ours)
    for file, data in found.files.items():
        if file.startswith("ranks") and file.endswith(".csv"):
            rows = list(csv.DictReader(io.StringIO(data.decode())))
            places = [(row["domain"], row["node"], row["gpu"]) for row in rows]
            assert len({*places}) == len(places)
    if target == "torchft":
        assert {file for file in found.files if file.startswith("launch-")} == {
            f"launch-{name}.sh" for name in ours
        }
    readme = found.files["README.md"].decode()
    for own, name in zip(names, ours, strict=True):
        assert (f"* {own} is `{name}`" in readme) == (own != name)


def test_a_name_that_fits_is_kept() -> None:
    assert rank_map.sites(named(("A", "a", "site1"), three_sites())) == ("a-2", "a", "site1")


def test_sites_that_would_be_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_map, "sites", lambda job: ("x", "x", "y"))
    with pytest.raises(UsageError, match="two sites would have one name"):
        writing.export(registry.target("torchrun"), tri(three_sites()), Path("unused"), nearest=True)


@pytest.mark.parametrize("kind", SITES)
def test_host_names_and_labels_of_kubernetes_are_valid_and_apart(kind: str) -> None:
    job = named(SITES[kind], three_sites(), name="2-sites-of-a-job-with-a-long-name.v1")
    files = writing.export(registry.target("kubernetes"), job, Path("unused"), nearest=True).files
    _, job_set = yaml.load_all(files["jobset.yaml"], Loader=yaml.BaseLoader)
    jobs = job_set["spec"]["replicatedJobs"]
    hosts = [f"{job_set['metadata']['name']}-{one['name']}-0-0-abcde" for one in jobs]
    assert len({*hosts}) == 3 and all(len(host) <= 63 and host[0].isalpha() for host in hosts)
    terms = [
        one["template"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"][0]
        for one in jobs
    ]  # fmt: skip
    labels = [value for term in terms for value in term["values"]]
    assert len({*labels}) == 3 and all(label.isascii() and len(label) <= 63 for label in labels)
    assert all(f"`{label}`" in files["README.md"].decode() for label in labels)


WORDS = (
    "y n Y N yes no on off On OFF true False null Null ~ 1e3 1E5 -1e-3 +1 1_000 0x1F 0b101 0o17 017 08 "
    "12:30 1:30:00.5 190:20:30 .inf -.INF .nan nan inf 1.5 1. .5 6.02e23 2026-01-01 2026-01-01T00:00:00Z "
    "= << - ? !x &a *a %d @at `b [a] {a} a:b a#b"
)


@pytest.mark.parametrize("text", [*WORDS.split(), "", " a", "a ", "a: b", "a #b", "- a", "two\nlines", "é"])
def test_a_text_is_quoted_where_a_version_of_yaml_takes_it_for_something_else(text: str) -> None:
    dumped = yaml_text.dump({"values": [text], text: 1})
    assert yaml.safe_load(dumped) == {"values": [text], text: 1}
    scalars = [token for token in yaml.scan(dumped) if isinstance(token, yaml.ScalarToken)]
    assert not any(token.plain for token in scalars if token.value == text), dumped


@pytest.mark.parametrize("text", ["us-east-1", "batch/v1", "nvidia.com/gpu", "Never", "a"])
def test_plain_words_stay_plain(text: str) -> None:
    assert yaml_text.dump({text: [text]}) == f"{text}:\n- {text}\n"
