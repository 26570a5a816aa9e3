"""The report: self-contained, complete, from events alone."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from ingest.core.errors import NotFoundError
from replay.log.run_log import RunReader, RunWriter
from replay.metrics import paired_comparison
from replay.metrics.cost_time_points import CostTimePoint, marked, points
from replay.metrics.kpis import of_events
from replay.report import charts, kpi_table, run_comparison, time_breakdown
from replay.report import page as report
from replay.report.decisions import OTHERS_SHOWN, decisions
from replay.report.drawing.formatting import percent, scaled
from replay.report.drawing.section import Section
from replay.report.drawing.svg import ticks
from replay.report.run_data import (
    LINK_POINTS,
    SERIES_POINTS,
    ChartSeries,
    PlanSpan,
    RunData,
    ShownDecision,
    fold_run,
)
from replay.run import runner, whatif
from tests.support.histories import history, started, totals, write
from tests.support.toys import toy_run, without_lake
from tests.support.worlds import toy_scenario

RUN = "made-up-mpc-s0"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write(folder / "runs" / RUN)
    return folder


@pytest.fixture(scope="module")
def page(store: Path) -> str:
    return report.write(store, RUN).read_text(encoding="utf-8")


def html(section: Section | None) -> str:
    assert section is not None
    return str(section.html)


class Balance(HTMLParser):
    """Fails on a tag that is closed out of order."""

    VOID = frozenset({"meta", "br", "path", "rect", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID or (tag in ("rect", "path") and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_network(page: str) -> None:
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert not re.findall(r"""<[^>]*\bsrc\s*=|href="(?!#)|@import|url\((?!#)|<link|fetch\(|XMLHttp""", page)
    addresses = {*re.findall(r"https?://[^\s\"'<)]+", page)}
    assert addresses <= {"https://github.com/leeoniya/uPlot"}  # in the comment that names the author


def test_the_page_has_all_parts(page: str) -> None:
    titles = re.findall(r"<h2 [^>]*>(.*?)</h2>", page)
    assert titles == [
        "The answer",
        "Sites and links",
        "Plan over time",
        "Iterations",
        "Where the time went",
        "Wide-area links",
        "Traffic between domains",
        "Power",
        "Cost",
        "Key figures",
        "Decisions",
        "Scenario, and how to make it again",
        "How to check this",
    ]
    assert page.count("<tr class=") == 12 and page.count('type="button" aria-expanded="false"') == 12
    assert len(re.findall(r'<div class="live" role="img" tabindex="0" aria-label="[^"]{20,}"', page)) == 12


def test_the_table_of_contents_reaches_every_section(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    links = re.findall(r'href="#([^"]+)"', page)
    assert len(ids) == len(set(ids)) and set(links) <= set(ids)
    assert set(re.findall(r'<section id="([^"]+)"', page)) == set(links) - {"content"}


def test_everything_that_is_used_has_a_name(page: str) -> None:
    assert '<html lang="en">' in page and '<nav aria-label="Contents">' in page
    for tag in re.findall(r'<(?:svg|div)[^>]*role="(?:img|region)"[^>]*>', page):
        assert "aria-label=" in tag, tag
    for field in re.findall(r'<(?:input|select)[^>]*id="([^"]+)"', page):
        assert re.search(rf'<label>[^<]*<(?:input|select)[^>]*id="{field}"', page)
    assert "prefers-color-scheme: dark" in page and "@media print" in page


def test_synthetic_data_is_labelled_and_measured_data_is_not(tmp_path: Path, page: str) -> None:
    assert "Synthetic data." in page
    assert page.count('<em class="tag">synthetic</em>') == 9  # head, picture, links and each of them
    measured = {**started(), "dataset": "cloudpilot-iperf3", "note": "streams scaled"}
    with RunWriter.create(tmp_path / "runs" / "m") as writer:
        writer.append(0, "run_started", measured)
        writer.finish({})
    text = report.render(tmp_path, "m")
    assert "Synthetic data." not in text
    assert "cloudpilot-iperf3" in text
    assert "streams scaled" in text


def test_the_run_can_be_checked_from_the_page(store: Path, page: str) -> None:
    reader = RunReader(store / "runs" / RUN)
    assert reader.digest() in page
    assert reader.chain_head() in page
    assert f"twin audit {RUN}" in page


def test_the_figures_are_those_of_the_events(store: Path, page: str) -> None:
    kpis = of_events(RunReader(store / "runs" / RUN).events())
    assert f"<b>${kpis.egress_usd:,.2f}</b><span>egress</span>" in page
    assert f"utilisation in the plan {percent(kpis.utilisation)}" in page
    assert kpis == fold_run(RunReader(store / "runs" / RUN).events())[1]


def test_the_page_is_the_same_each_time_and_replaces_the_old_one(
    store: Path, page: str, tmp_path: Path
) -> None:
    assert report.write(store, RUN).read_text(encoding="utf-8") == page
    assert report.write(store, RUN, tmp_path / "deep" / "x.html").read_text(encoding="utf-8") == page


def test_an_unfinished_run_is_shown_and_says_so(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "runs" / "half") as writer:
        for sim_ns, kind, payload, wall in list(history())[:100]:
            writer.append(sim_ns, kind, payload, wall=wall)
    assert "twin replay --resume half" in report.render(tmp_path, "half")


def test_a_run_without_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    for run in ("empty", "nowhere"):
        with pytest.raises(NotFoundError):
            report.write(tmp_path, run)
    assert not (tmp_path / "reports").exists()


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>')


def hostile_header(text: str) -> dict[str, Any]:
    scenario = {**started()["scenario"], "name": text, "model": text}
    domains = scenario["cluster"]["domains"]
    scenario["cluster"] = {"domains": [{**domain, "name": f"{text}{k}"} for k, domain in enumerate(domains)]}
    return {"scenario": scenario, "dataset": text, "note": text, "policy": text, "checkpoint": text}


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_texts_of_a_log_are_escaped(tmp_path: Path, text: str) -> None:
    run_id = text.replace("/", "")
    with RunWriter.create(tmp_path / "runs" / run_id) as writer:
        for sim_ns, kind, payload, wall in history(4):
            changes = {
                "decided": {"reason": text},
                "triggered": {"trigger": text},
                "run_started": hostile_header(text),
            }
            writer.append(sim_ns, kind, {**payload, **changes.get(kind, {})}, wall=wall, job=text)
        writer.finish(totals(4))
    page = report.render(tmp_path, run_id)
    tags = Counter(name.split(" id=")[0] for name in re.findall(r"<(script[^>]*|img)", page))
    assert tags.pop("script") == 2 and set(tags) == {
        'script type="application/json"'
    }  # uPlot and its own; data
    assert "<script>alert" not in page and "<img" not in page
    assert str(escape(text)) in page and str(escape(run_id)) in page


def test_the_comparison_shows_every_policy_and_the_bound(store: Path) -> None:
    kpis = of_events(RunReader(store / "runs" / RUN).events())
    row = SimpleNamespace(
        policy="mpc",
        run_id=RUN,
        problem=None,
        kpis=kpis,
        reduction_vs_static=0.12,
        reduction_vs_single=None,
        regret=0.01,
    )
    lame = SimpleNamespace(policy="single", run_id=None, problem="no domain holds the model", kpis=None)
    bound = SimpleNamespace(
        tokens=2.4e7, exact=True, utilisation=0.6, egress_usd=1.0, timeline=[(0, None), (5, None)]
    )
    result = SimpleNamespace(rows=(row, lame), bound=bound, wall_s=3600.0, seed=0)
    text = report.render(store, RUN, result)  # type: ignore[arg-type]
    assert "All policies in this world" in text
    assert '<tr class="this"><th scope="row">mpc</th>' in text
    assert percent(0.12, sign="+") in text
    assert "no domain holds the model" in text
    assert "clairvoyant bound</th>" in text


def test_run_data_add_up(store: Path) -> None:
    run, _ = fold_run(RunReader(store / "runs" / RUN).events())
    assert sum(run.time_s.values()) == pytest.approx(3600.0)
    assert [(span.start_s, span.end_s) for span in run.spans] == [
        (0.0, 1200.0),
        (1220.0, 2400.0),
        (2420.0, 3600.0),
    ]
    assert run.used_links == [(0, 1), (1, 0)]
    assert run.outages == [((0, 1), 3600.0, 3600.0)]


def test_a_long_series_is_thinned_and_keeps_a_short_dip() -> None:
    series = ChartSeries()
    for n in range(50_000):
        series.add(float(n), 1.0 if n == 31_234 else 100.0)
    assert SERIES_POINTS <= len(series.points) < 2 * SERIES_POINTS
    assert (31_234.0, 1.0) in series.points
    times = [point[0] for point in series.points]
    assert times == sorted(times)
    steps = np.diff(times)  # a point stands for 32 samples, wherever it lies
    assert max(steps) < 64 and all(n * 32 <= time < (n + 1) * 32 for n, time in enumerate(times))


def test_a_sum_that_grows_keeps_its_last_value_however_long_it_is() -> None:
    for length in (3, 399, 400, 401, 5_003):
        series = ChartSeries(100)
        for n in range(length):
            series.add(float(n), float(n * n))
        assert series.points[-1] == (length - 1, (length - 1) ** 2)


def test_an_alarm_is_shown_at_its_own_link(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "runs" / "a") as log:
        for sim_ns, kind, payload, wall in history():
            if kind == "triggered" and payload["number"] == 3:
                payload = {**payload, "trigger": "alarm", "reasons": {"alarm": [[[0, 1], [2, 1]], [[2, 0]]]}}
            log.append(sim_ns, kind, payload, wall=wall)
    run, _ = fold_run(RunReader(tmp_path / "runs" / "a").events())
    assert run.alarms == {(0, 1): [900.0], (2, 1): [900.0], (2, 0): [900.0]}
    page = html(charts.links(run))
    assert page.count('"filter alarm"') == page.count('"kind":"ticks"') == 3
    assert '"moments"' not in page, "an outage is drawn over the whole height, an alarm is not"


def test_changes_of_plan_are_listed_before_decisions_that_kept_it(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "runs" / "a") as log:
        for sim_ns, kind, payload, wall in history():
            log.append(sim_ns, kind, payload, wall=wall)
    run, _ = fold_run(RunReader(tmp_path / "runs" / "a").events())
    rows = re.findall('<tr class="(\\w+)">.*?<td>([^<]*)</td>', html(decisions(run)))
    kept = [css == "hold" for css, _ in rows]
    assert kept == sorted(kept) and len(set(kept)) == 2
    for part in (False, True):
        times = [time for css, time in rows if (css == "hold") == part]
        assert times == sorted(times)


def test_two_runs_beside_each_other_and_the_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    mine, other = toy_run(tmp_path, "greedy"), toy_run(tmp_path, "static")
    found = whatif.pair(tmp_path, other.run_id, mine.run_id)
    text = report.write(tmp_path, mine.run_id, versus=found).read_text(encoding="utf-8")
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    assert ">greedy beside static</h2>" in text and "Their plans part at decision 0" in text
    assert f"{mine.kpis.tokens / 1e6:,.4g}" in text and f"{other.kpis.tokens / 1e6:,.4g}" in text
    assert all(v.kpi in run_comparison.VERDICT_FIGURES for v in found.verdicts)
    assert text.count('class="dots big') == 2 and '<span class="this">greedy</span>' in text
    assert ">Bottleneck over time</h2>" in text and "What limits the iteration at each decision" in text
    assert "per 10⁹ tokens in all" in text and "tokens/s, MFU" in text
    total, rent, egress = (
        scaled(usd, 1e9)
        for usd in (mine.kpis.total_usd_per_token, mine.kpis.rent_usd_per_token, mine.kpis.usd_per_token)
    )
    assert f"${total}" in text and f"GPU rent {rent} + egress {egress}" in text
    assert "L(tp" not in text and "mbs" not in text  # plans in one notation
    assert "by the model" in text  # the waterfall splits what iterations waited for
    assert report.render(tmp_path, other.run_id).count(">Time and money</h2>") == 1


def test_the_front_is_what_nothing_beats_in_both() -> None:
    def point(name: str, seconds: float, usd: float) -> CostTimePoint:
        return CostTimePoint(name, name, (), seconds, usd)

    a, b, c, d, e = (
        point(*figures) for figures in (("a", 5, 0), ("b", 3, 2), ("c", 3, 3), ("d", 6, 0), ("e", 1, 9))
    )
    found = marked([e, d, c, b, a])
    assert [p.policy for p in found] == ["a", "d", "b", "c", "e"]
    assert {p.policy for p in found if p.best} == {"a", "b", "e"}
    twins = marked([a, replace(a, run_id="x")])
    assert all(p.best for p in twins)


def test_points_are_runs_of_this_world_with_any_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    base = toy_run(tmp_path, "mpc")
    cheap = toy_scenario(weights={"efficiency": 0.0, "utilisation": 0.0, "cost": 1.0})
    other = runner.run(tmp_path, policy="mpc", scenario=cheap)
    toy_run(tmp_path, "mpc", seed=9)  # another world
    first = whatif.what_if(tmp_path, base.run_id, "static").run_id  # another policy in this world
    later = whatif.what_if(tmp_path, base.run_id, "greedy", from_decision=2).run_id  # two policies decided
    found = points(tmp_path, base.run_id)
    assert {p.run_id for p in found} == {base.run_id, other.run_id, first}
    assert later in {p.run_id for p in points(tmp_path, later)}, "but its own page shows it"
    text = report.render(tmp_path, base.run_id)
    assert re.search(r"mpc \(0/0/1\)", text)


def test_the_waterfall_ends_where_computing_begins(store: Path) -> None:
    run, _ = fold_run(RunReader(store / "runs" / RUN).events())
    text = html(time_breakdown.time_spent(run))
    seconds = [float(value.replace(",", "")) for value in re.findall(r"<b>([0-9,.e+]+) s", text)]
    assert seconds[0] == pytest.approx(3600.0) and len(seconds) >= 4
    assert sum(seconds[1:]) == pytest.approx(3600.0, rel=1e-3)
    assert seconds[-1] == pytest.approx(run.computing_s, rel=1e-3)


def test_a_run_beside_another_shows_a_dash_for_what_has_no_value() -> None:
    assert run_comparison._difference(None, 2.0, 1e3) == ("–", "2,000", "–", "–")
    assert run_comparison._difference(0.0, 2.0, 1.0) == ("0", "2", "+2", "–")


def test_the_bound_stands_in_the_front_and_may_be_missing() -> None:
    found = [CostTimePoint("a", "mpc", (), 1e-4, 1e-6, True), CostTimePoint("b", "static", (), 2e-4, 2e-6)]
    assert "the clairvoyant bound" in html(run_comparison.front(found, "a", (1e-6, 5e-5)))
    assert "the clairvoyant bound" not in html(run_comparison.front(found, "a"))


def test_key_figures_have_intervals_around_the_figures_of_the_events(store: Path, page: str) -> None:
    kpis = of_events(RunReader(store / "runs" / RUN).events())
    found = kpi_table.intervals(store, RUN, 3600.0, seed=0)
    for name in ("time_per_token_s", "utilisation", "usd_per_token"):
        verdict, figure = found[name], kpis.to_json()[name]
        assert verdict.mean == pytest.approx(figure, rel=1e-6)
        assert verdict.low < figure < verdict.high
    assert kpi_table.spread(found["time_per_token_s"], 1e6) in page


def test_a_ratio_of_nothing_is_infinite_and_still_has_an_interval() -> None:
    part, whole = np.ones(24), np.repeat([0.0, 1 / 3], [18, 6])
    verdict = paired_comparison.ratio("x", part, whole, seed=0)
    assert verdict.mean == pytest.approx(12.0) and verdict.low < 12.0 and verdict.high == float("inf")
    assert kpi_table.spread(verdict, 1.0).endswith("∞")
    assert paired_comparison.ratio("x", part, whole * 0, seed=0).low == float("inf")


def test_savings_are_paired_with_static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)
    static, other = toy_run(tmp_path, "static"), toy_run(tmp_path, "mpc")
    rows = tuple(
        SimpleNamespace(policy=policy, run_id=run.run_id, kpis=run.kpis)
        for policy, run in (("static", static), ("mpc", other))
    )
    result = SimpleNamespace(rows=rows, wall_s=other.kpis.wall_s, seed=0)
    found = kpi_table.saved(tmp_path, result)  # type: ignore[arg-type]
    assert list(found) == [other.run_id]
    verdict = found[other.run_id]
    assert verdict.mean == pytest.approx(1 - static.kpis.progress_tokens / other.kpis.progress_tokens)
    assert verdict.low <= verdict.mean <= verdict.high
    alone = SimpleNamespace(rows=rows[1:], wall_s=1.0, seed=0)
    assert kpi_table.saved(tmp_path, alone) == {}  # type: ignore[arg-type]


def test_every_job_has_its_own_plans_that_end_with_it(tmp_path: Path) -> None:
    events = list(history(1))
    applied = next(payload for _, kind, payload, _ in events if kind == "plan_applied")
    done = next(payload for _, kind, payload, _ in events if kind == "iteration_done")
    with RunWriter.create(tmp_path / "runs" / "j") as log:
        log.append(0, "run_started", started())
        log.append(0, "plan_applied", applied, job="a")
        log.append(5 * 10**9, "plan_applied", {**applied, "pause_ns": 10**9}, job="b")
        log.append(20 * 10**9, "job_preempted", {"reason": "for c", "gpus": [0, 0, 0]}, job="a")
        log.append(30 * 10**9, "iteration_done", {**done, "start_ns": 0}, job="b")
        lost = {"reason": "moving", "start_ns": 40 * 10**9, "lost_ns": 20 * 10**9, "wan_bytes": []}
        rest = {"moved_bytes": [], "egress_usd": 0.0, "gpu_usd": 0.0, "energy_j": 0.0}
        rest |= {"gpu_ns": 0, "stalled_ns": 0}
        log.append(60 * 10**9, "time_lost", {**lost, **rest}, job="b")
        log.finish(totals(1))
    run, _ = fold_run(RunReader(tmp_path / "runs" / "j").events())
    assert run.jobs == ["a", "b"]
    assert [(span.job, span.start_s, span.end_s) for span in run.spans] == [("a", 0, 20), ("b", 5, 40)]
    assert run.aborted_moves == [("b", 40, 60)] and set(run.iteration_s) == {"b"}
    text = html(charts.plan_over_time(run))
    assert "<strong>a</strong>: layers" in text and "<strong>b</strong>: layers" in text
    assert text.count('"colour":"ink"') == 2


def test_a_page_of_many_links_plans_and_decisions_stays_small() -> None:
    names = [f"region-{k}" for k in range(30)]
    scenario = {"cluster": {"domains": [{"name": n} for n in names]}}
    run = RunData(header={**started(), "dataset": "measured", "scenario": scenario})
    run.end_s = 1e6
    for pair in ((i, j) for i in range(30) for j in range(30) if i != j):
        for n in range(450 if pair[0] < 3 else 2):
            run.observed_bps[pair].add(1e3 * n, 1e9 + n)
            run.filtered_bps[pair].add(1e3 * n, 1e9 + n, 0.1)
        run.alarms[pair] = [float(n) for n in range(3000)]
    plan = next(payload["plan"] for _, kind, payload, _ in history(1) if kind == "plan_applied")
    run.spans = [PlanSpan(n * 100.0, n * 100.0 + 50, 50.0, plan, 10) for n in range(10_000)]
    details = {"action": "move", "fallback": None, "plan": plan, "reason": "r", "predicted_iter_s": 1.0}
    candidate = {"plan": plan, "score": 1.0, "iter_s": 1.0, "utilisation": 0.5, "usd": 0.1}
    run.decisions = [
        ShownDecision(n, float(n), "period", {**details, "candidates": [candidate] * 20}, {}, "")
        for n in range(5000)
    ]
    links, plans, listed = map(html, (charts.links(run), charts.plan_over_time(run), decisions(run)))
    assert links.count("<figure") == charts.LINKS_MOST and "810 further links" in links
    assert all(len(series.points) < 2 * LINK_POINTS for series in run.observed_bps.values())
    assert f"{charts.PLANS_DRAWN} of 10,000 plans are drawn" in plans
    assert listed.count('aria-expanded="false"') == OTHERS_SHOWN and "4,700 further decisions" in listed
    assert sum(map(len, (links, plans, listed))) < 2.5e6


def test_the_line_of_a_filter_stops_where_the_link_is_dead(store: Path) -> None:
    run, _ = fold_run(RunReader(store / "runs" / RUN).events())
    pair = run.used_links[0]
    assert "null" not in html(charts.links(run))
    middle = len(run.filtered_bps[pair].points) // 2
    time_s, _, sd = run.filtered_bps[pair].points[middle]
    run.filtered_bps[pair].points[middle] = (time_s, 0.0, sd)
    assert html(charts.links(run)).count(",null,") == 3  # the estimate and both ends of its band


def test_axes_need_not_begin_at_nothing() -> None:
    assert ticks(157.0, 5, 83.0) == [100.0, 120.0, 140.0]
    near = [
        CostTimePoint("a", "mpc", (), 1e-4, 1.6105e-5, True),
        CostTimePoint("b", "static", (), 2e-4, 1.619e-5),
    ]
    labels = re.findall(r'class="tx"[^>]*>([^<]*)<', html(run_comparison.front(near, "a")))
    assert labels and len(set(labels)) == len(labels)  # close together, still told apart


def test_a_training_shows_its_curves_and_no_figures_of_a_run(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "runs" / "t") as log:
        log.append(0, "run_started", {**started(), "policy": "train"})
        for n in range(3):
            update = {"stage": "imitation", "update": 10 * n, "steps": 0, "metrics": {"loss": 5.0 - n}}
            log.append(0, "policy_updated", update)
        for n in range(1, 4):
            metrics = {"reward": -0.1 * n, "validation_score": 0.2}
            log.append(
                0, "policy_updated", {"stage": "ppo", "update": n, "steps": 64 * n, "metrics": metrics}
            )
        log.finish({})
    text = report.render(tmp_path, "t")
    balance = Balance()
    balance.feed(text)
    assert balance.open == [] and "<h1>made-up: log of train</h1>" in text
    titles = re.findall(r"<h2 [^>]*>(.*?)</h2>", text)
    assert titles == ["Training: imitation", "Training: ppo", "How to check this"]
    drawn = [text.count(f'aria-label="{name}') for name in ("loss of imitation", "mean reward", "moves a")]
    assert drawn == [1, 1, 0]
    assert "3 updates, 192 steps of the environment" in text and 'class="card"' not in text
