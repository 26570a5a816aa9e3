"""A queue over sites from its scenario to its run, and rates of jobs that run over several."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import UsageError
from ingest.pipeline.ingest import ingest
from policy.placement.sites import site_choice
from replay.audit.audit import audit
from replay.logqueue import logged_run, logged_sites, whatif
from replay.queueing import scenario_run, span_rates
from replay.queueing.on_sites import SiteComparison
from tests.support import queue_log
from tests.support.site_queue import FILE
from tests.support.site_queue import site_queue as written
from twin.estimation.estimator import Estimator
from twin.scenario import cluster_and_jobs, prepare
from twin.sites.inputs import single_sites
from twin.traces.wan_trace import LinkSeries, trace

S = 10**9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    ingest([queue_log.TARGET, repository / "traces" / "synthetic-tri"], folder)
    return folder


def test_a_queue_over_sites_is_kept_audited_and_asked_what_if(store: Path, tmp_path: Path) -> None:
    found = scenario_run.replay(store, written(tmp_path), ["easy"])
    assert isinstance(found, SiteComparison)
    one, run_id = found.figures["easy"], found.runs["easy"]
    assert one.moved_jobs > 0 and one.egress_usd > 0 and one.spanning_jobs > 0 and one.stretch > 1
    assert one.moved_gb * 0.02 <= one.egress_usd  # messages of spanning jobs cost, too
    assert any("SYNTHETIC data" in note for note in found.log.notes)
    assert audit(store, run_id).ok
    run = logged_run.load(store, run_id)
    assert run.sites is not None and run.unit == "GPUs" and logged_sites.overfull(run.sites) == []
    crowd = replace(run.sites, start_ns=run.sites.start_ns * 0, end_ns=run.sites.end_ns)
    assert "GPUs are in use at us-east-1, which has 40" in logged_sites.overfull(crowd)[0]
    assert whatif.what_if(store, run_id, "fcfs").other["egress_usd"] > 0


def test_placements_over_sites_do_what_they_say(store: Path, tmp_path: Path) -> None:
    figures = {}
    for name in ("least-egress", "at-data", "fastest"):
        scenario = written(tmp_path, FILE.replace("spanning: larger", f"placement: {name}"))
        found = scenario_run.replay(store, scenario, ["easy"], keep=False)
        assert (
            isinstance(found, SiteComparison) and found.log.reasons["fits on no site, alone or with others"]
        )
        figures[name] = found.figures["easy"]
    assert figures["at-data"].egress_usd < figures["least-egress"].egress_usd
    assert figures["at-data"].of_pool.avg_wait_s > figures["fastest"].of_pool.avg_wait_s
    with pytest.raises(UsageError, match="did you mean 'fastest'"):
        site_choice("fastst")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("eu-west-1: 0.3", "eu-west-2: 0.3", "data.sites names the unknown site"),
        ("model: llama2-7b\n", "", "say `model` and `job`"),
        ("name: over-sites", "name: over-sites\nrules: rlscheduler", "played under `instant`"),
        ("name: over-sites", "name: over-sites\nprocessors: 4", "and not both"),
        ("wan: {dataset: synthetic-tri, streams: 128, sample_streams: 1, cap_bps: 10.0e9}", "", "need both"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        written(tmp_path, FILE.replace(old, new))


def test_rates_are_those_of_a_plan_under_each_state_of_the_links() -> None:
    scenario = prepare.load("tri-7b")
    cluster, job = cluster_and_jobs.cluster(scenario.cluster, None), cluster_and_jobs.job(scenario)
    names = tuple(one.name for one in cluster.domains)
    at = np.array([0, 10, 20, 30], np.int64) * S
    speeds = np.array([8e9, 1e9, 0.0, 8e9])
    series = {(i, j): LinkSeries(at, speeds, np.full(4, 0.03)) for i in range(3) for j in range(3) if i != j}
    links, sizes = trace(names, series, 40 * S), np.array([4, 8])
    made, plans = span_rates.spans(sizes, cluster, job, links, at, frozenset({8}))
    assert made.first.tolist() == [0, 0, 3] and (made.need.sum(axis=1) == 8).all()
    assert made.need.tolist() == [[4, 4, 0], [4, 0, 4], [0, 4, 4]] and made.home.tolist() == [0, 0, 1]
    fast, slow, dead, again = made.rate[:, 0].tolist()
    assert 1000 >= fast > slow > 0 and dead == 0 and again == fast
    plan, estimator = plans[4, 4, 0], Estimator(cluster, job)
    iterations = [estimator.iter_ns(plan, links.at(int(one))) for one in at[:2]]
    assert fast / slow == pytest.approx(iterations[1] / iterations[0], rel=0.02)
    both = single_sites(sizes, np.array([4, 4, 4]), 4)
    assert both.first.tolist() == [0, 3, 3]


def test_too_many_sizes_and_sets_of_sites_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_rates, "MOST_WAYS", 2)
    scenario = prepare.load("tri-7b")
    cluster, job = cluster_and_jobs.cluster(scenario.cluster, None), cluster_and_jobs.job(scenario)
    series = {
        (i, j): LinkSeries(np.array([0]), np.array([1e9]), np.array([0.03]))
        for i in range(3)
        for j in range(3)
        if i != j
    }
    links = trace(tuple(one.name for one in cluster.domains), series, S)
    with pytest.raises(UsageError, match="3 sizes and sets of sites need a plan each"):
        span_rates.spans(np.array([8]), cluster, job, links, np.array([0]), frozenset({8}))
