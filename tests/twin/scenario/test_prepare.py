import json
import random
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from ingest.core import resources
from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S
from ingest.pipeline.ingest import ingest
from tests.support.worlds import toy_scenario, toy_setup, toy_wan
from twin.calibration.calibration import Calibration
from twin.calibration.least_squares import Fit
from twin.core.adapters import Adapters
from twin.filters import history as filter_history
from twin.scenario import cluster_and_jobs
from twin.scenario.cluster_and_jobs import cluster
from twin.scenario.prepare import assemble, digest, load, names, prepare
from twin.settings.scenario_file import LATER_JOB_KEYS, Scenario
from twin.traces.wan_trace import LinkSeries

S = NS_PER_S


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    ingest([resources.traces() / "synthetic-tri", resources.traces() / "synthetic-quad"], folder)
    return folder


@pytest.mark.parametrize("name", names())
def test_every_shipped_scenario_loads_and_its_gpus_fill_nodes(name: str) -> None:
    scenario = load(name)
    assert scenario.name == name
    setup = assemble(scenario.model_copy(update={"wan": scenario.wan}), toy_like(scenario.domains))
    assert setup.cluster.size == len(scenario.domains)
    assert setup.job.tokens_per_iteration == setup.job.global_batch * setup.job.model.seq


def toy_like(domains: tuple[str, ...]):
    wan = toy_wan(len(domains))
    return type(wan)(domains, wan.series, 0, wan.end_ns, 0, wan.digest, "toy")


def test_an_unknown_scenario_is_named_with_the_likely_one() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'tri-7b'"):
        load("tri-7")
    with pytest.raises(NotFoundError, match="does not exist"):
        load("nowhere/tri.yaml")


def test_a_scenario_may_be_a_path(tmp_path: Path) -> None:
    text = (resources.configs("scenarios") / "tri-7b.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("name: tri-7b", "name: mine"))
    assert load(str(tmp_path / "mine.yaml")).name == "mine"
    (tmp_path / "mine.yaml").write_text(text.replace("period_s: 60", "perod_s: 60"))
    with pytest.raises(
        UsageError, match=r"mine.yaml:\d+ control.perod_s: unknown key; did you mean 'period_s'"
    ):
        load(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"outages": [{"src": "d0", "dst": "d9", "at_s": 0, "for_s": 1}]},
            "outages names the unknown domain 'd9'",
        ),
        (
            {"gpu_faults": [{"domain": "x", "gpus": 1, "at_s": 0, "for_s": 1}]},
            "gpu_faults names the unknown domain",
        ),
        (
            {"slowdowns": [{"domain": "x", "factor": 2, "at_s": 0, "for_s": 1}]},
            "slowdowns names the unknown domain",
        ),
        ({"control": {"period_s": 60, "horizons_s": [60, 0]}}, "starts with 0"),
        ({"weights": {"efficiency": 1, "utilisation": 1, "cost": 0}}, "must be 1, not 2"),
        (
            {"wan": {"dataset": "t", "streams": 1, "cap_bps": 1, "sites": {"e0": "x"}}},
            "wan.sites names the unknown",
        ),
        (
            {"wan": {"dataset": "t", "streams": 1, "cap_bps": 1, "rtt_s": {"d0-d1": 1}}},
            "write a pair as 'a > b'",
        ),
    ],
)
def test_a_scenario_that_contradicts_itself_says_where(change: dict, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        toy_scenario(**change)
    assert message in str(caught.value)


def test_a_domain_may_have_a_gpu_model_of_ones_own() -> None:
    sheet = {
        "teraflops": 400, "fp32_teraflops": 200, "memory_gb": 96, "memory_gb_s": 2500, "idle_w": 50,
        "peak_w": 450,
    }  # fmt: skip
    plain = toy_scenario().model_dump()
    assert "gpu_models" not in plain["cluster"] and not set(LATER_JOB_KEYS) & plain["job"].keys()
    plain["cluster"]["gpu_models"] = {"Fast-1": sheet}
    plain["cluster"]["domains"][1]["gpu"] = "Fast-1"
    found = cluster(Scenario.model_validate(plain).cluster, None).domains
    assert found[0].gpu.name != "Fast-1" and found[1].gpu.name == "Fast-1"
    assert (found[1].gpu.peak_flops, found[1].gpu.memory_bytes) == (400e12, 96 * 10**9)
    plain["cluster"]["domains"][1]["gpu"] = "Fast-2"
    with pytest.raises(UsageError, match=r"cluster\.gpu_models"):
        cluster(Scenario.model_validate(plain).cluster, None)


def test_gpus_must_fill_nodes() -> None:
    cluster = toy_scenario().cluster.model_dump()
    cluster["domains"][1]["gpus"] = 6
    with pytest.raises(UsageError, match="domain 'd1': 6 GPUs do not fill nodes of 4"):
        toy_setup(cluster=cluster)


def test_an_unknown_model_or_gpu_is_named() -> None:
    with pytest.raises(UsageError, match="llama9"):
        toy_setup(model="llama9")


def test_prices_take_the_most_specific_statement() -> None:
    cluster = load("quad-70b").cluster
    prices = cluster.usd_per_gb
    assert prices.price("europe-west2-a_gcp", "lon02_ibm") == 0.08
    assert prices.price("europe-west2-a_gcp", "syd01_ibm") == 0.15
    assert prices.price("syd01_ibm", "lon02_ibm") == 0.14


def test_prepare_from_the_shipped_traces(store: Path) -> None:
    setup = prepare(load("tri-7b"), store)
    assert setup.wan.end_ns == pytest.approx(0.3 * 4 * 3600 * S, abs=S)
    assert setup.wan.names == ("us-east-1", "eu-west-1", "ap-northeast-1")
    assert 0.1e9 < setup.wan.at(0).bandwidth_bps[0, 1] <= 10e9
    assert 0.01 < setup.wan.at(0).latency_s[0, 2] < 0.2
    assert setup.start is not None
    again = prepare(load("tri-7b"), store)
    assert json.dumps(again.header()) == json.dumps(setup.header())
    assert np.array_equal(again.filters.bandwidth.mu, setup.filters.bandwidth.mu)


def test_another_data_set_takes_the_place_of_the_scenarios_own(store: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"cloudpilot-iperf3.*choose one of: synthetic-quad, synthetic-tri"
    ):
        prepare(load("quad-70b"), store)
    setup = prepare(load("quad-70b"), store, dataset="synthetic-quad", window="train")
    assert setup.dataset == setup.header()["scenario"]["wan"]["dataset"] == "synthetic-quad"
    assert setup.start is None
    long, metro = setup.wan.at(0).bandwidth_bps[0, 2], setup.wan.at(0).bandwidth_bps[0, 1]
    assert 0.1e9 < long < 4e9
    assert metro == 10e9


def test_the_header_is_json_and_names_what_the_run_depends_on() -> None:
    header = json.loads(json.dumps(toy_setup().header()))
    assert set(header["traces"]) == {"source", "window"}
    assert header["scenario"]["control"]["period_s"] == 60


def test_a_job_of_a_mixture_says_how_its_experts_are_shared() -> None:
    job = {"global_batch": 32, "micro_batches": [1], "ep": [1, 4], "expert_imbalance": 1.25}
    found = cluster_and_jobs.job(toy_scenario(model="mixtral-8x7b", job=job))
    assert found.ep == (1, 4) and found.tensor_mode.expert_imbalance == 1.25
    with pytest.raises(UsageError, match="ep 4 needs a model with experts"):
        cluster_and_jobs.job(toy_scenario(job=job))
    with pytest.raises(ValidationError, match="no less than the mean"):
        toy_scenario(job=job | {"expert_imbalance": 0.5})


def test_a_job_may_train_adapters_alone() -> None:
    job = {"global_batch": 32, "micro_batches": [1], "lora": {"rank": 16, "targets": ["q", "o"]}}
    made = cluster_and_jobs.job(toy_scenario(job=job)).model
    assert made.adapters == Adapters(16, ("q", "o"))
    assert made.trained_parameters == 32 * 16 * 2 * (4096 + 4096)
    with pytest.raises(UsageError, match="no matrix is called 'w'"):
        cluster_and_jobs.job(toy_scenario(job=job | {"lora": {"rank": 16, "targets": ["w"]}}))


def test_digest_follows_the_content() -> None:
    assert digest(toy_scenario()) == digest(toy_scenario())
    assert digest(toy_scenario()) != digest(toy_scenario(seed=1))


def shuffled_future(wan, from_ns: int, seed: int = 0):
    """The same past, another future."""
    rng, series = random.Random(seed), {}
    for pair, link in wan.series.items():
        bandwidth = link.bandwidth_bps.copy()
        later = np.flatnonzero(link.times_ns >= from_ns).tolist()
        bandwidth[later] = bandwidth[rng.sample(later, len(later))] * 0.5
        series[pair] = LinkSeries(link.times_ns, bandwidth, link.latency_s)
    return wan.with_series(series, "shuffled")


def test_filters_and_their_start_know_only_the_past() -> None:
    rng = np.random.default_rng(0)
    steps = {
        (i, j): [(t, 1e9 * (1 + rng.random())) for t in range(10, 990, 10)]
        for i in range(2)
        for j in (1 - i,)
    }
    wan = toy_wan(2, seconds=1000, steps=steps)
    one, other = assemble(toy_scenario(2), wan), assemble(toy_scenario(2), shuffled_future(wan, 700 * S))
    assert one.wan.digest != other.wan.digest
    for a, b in (
        (one.filters.bandwidth, other.filters.bandwidth),
        (one.filters.latency, other.filters.latency),
    ):
        assert np.array_equal(a.mu, b.mu)
        assert np.array_equal(a.r, b.r)
    assert one.start is not None
    assert other.start is not None
    seen, also = one.start.forecast(0), other.start.forecast(0)
    assert np.array_equal(seen.bandwidth_bps, also.bandwidth_bps)
    assert np.array_equal(seen.sd_log, also.sd_log)
    assert np.array_equal(seen.widths, also.widths)


def test_the_past_leaves_the_filter_where_the_link_was() -> None:
    wan = toy_wan(2, seconds=10_000, steps={(0, 1): [(6500, 1e9)]})
    setup = assemble(toy_scenario(2), wan)
    got = setup.link_filter().forecast(0).bandwidth_bps[0]
    assert got[0, 1] == pytest.approx(1e9, rel=0.05)
    assert got[1, 0] == pytest.approx(2e9, rel=0.05)


def test_a_link_dead_in_training_is_refused_a_pause_is_not() -> None:
    dead = toy_wan(2, seconds=1000, steps={(0, 1): [(1, 0), (900, 1e9)]})
    with pytest.raises(UsageError, match="dead in all of the training share"):
        filter_history.fit(dead.window(2 * S, 700 * S), filter_history.TelemetryModel(30))
    paused = toy_wan(2, seconds=1000, steps={(0, 1): [(300, 0), (400, 2e9)]})
    assert np.exp(
        filter_history.fit(paused, filter_history.TelemetryModel(30)).bandwidth.mu[0]
    ) == pytest.approx(2e9)


def test_cloudpilot_gives_sensible_links(shared: Path, tmp_path: Path) -> None:
    ingest([shared / "traces/wan/cloudpilot-iperf3/baseline-mesh-2021-08.tar.gz"], tmp_path)
    scenario = load("quad-70b")
    stored = next((tmp_path / "lake" / "link_samples").iterdir()).name.removeprefix("dataset=")
    setup = prepare(scenario, tmp_path, dataset=stored, window="all")
    assert 19.9 < setup.wan.end_ns / 3600 / S < 21.5
    long = np.concatenate(
        [setup.wan.series[p].bandwidth_bps for p in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 0), (3, 1))]
    )
    assert long.mean() == pytest.approx(2.4e9, rel=0.15)
    assert setup.wan.series[1, 0].bandwidth_bps.max() == 10e9
    latency = np.concatenate([setup.wan.series[p].latency_s for p in ((0, 2), (1, 3), (3, 1))])
    assert latency.mean() == pytest.approx(0.147, abs=0.01)


def test_interleaved_takes_its_chunks_from_the_file(tmp_path: Path) -> None:
    text = (resources.configs("scenarios") / "tri-7b.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("schedule: 1f1b", "schedule: interleaved\n  chunks: 2"))
    scenario = load(str(path))
    setup = assemble(scenario, toy_like(scenario.domains))
    assert setup.job.schedule == "interleaved" and setup.job.chunks == 2
    path.write_text(text.replace("schedule: 1f1b", "schedule: interleaved"))
    with pytest.raises(UsageError, match=r"mine.yaml:\d+ job: .*interleaved has 2 or more"):
        load(str(path))


def test_a_calibration_is_taken_by_its_digest_and_reaches_times_and_power(store: Path) -> None:
    fit = Fit({"efficiency": 0.5, "start_s": 1e-5}, 10, 0.2, 0.1)
    power = Fit({"idle_w": 50.0, "slope_w": 100.0, "deviation_w": 1.0, "busy_activity": 1.0}, 10, None, 0.1)
    slow = Calibration("0" * 64, {"A100-80": {"product": fit, "power": power}}, {})
    slow.save(store)
    plain = prepare(load("tri-7b"), store)
    asked = load("tri-7b").model_copy(update={"calibration": "latest"})
    setup = prepare(asked, store)
    assert setup.header()["scenario"]["calibration"] == slow.digest
    assert plain.header()["scenario"]["calibration"] is None
    plan = plain.estimator().make((0,), (34,), 4, ((1, 1),), 1)
    links = setup.wan.at(0)
    before, after = (one.estimator().iteration(plan, links) for one in (plain, setup))
    assert after.iter_ns > 1.2 * before.iter_ns and after.energy_j < before.energy_j
    assert setup.cluster.domains[0].intra_node_bps == plain.cluster.domains[0].intra_node_bps
    # what is newest later changes nothing for a run that has recorded its digest
    Calibration("1" * 64, {"A100-80": {}}, {}).save(store)
    assert prepare(setup.scenario, store).estimator().iter_ns(plan, links) == after.iter_ns
    with pytest.raises(NotFoundError, match="begin with 'zz'; there are: "):
        prepare(load("tri-7b").model_copy(update={"calibration": "zz"}), store)


def test_without_a_calibration_latest_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="run `twin calibrate`"):
        prepare(load("tri-7b").model_copy(update={"calibration": "latest"}), tmp_path)
