"""What people read of results that are not the usual ones: nothing read, nothing found, halves missing."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Found
from typing import Any

import pytest

from commands.show import data, estimate, run, status, training, whatif
from commands.show import decision as show_decision
from commands.show.console import Console
from ingest.pipeline.follow import Followed
from ingest.pipeline.ingest_report import FileResult, IngestReport
from ingest.public.fetch import Fetched
from replay.audit.rerun import Rerun
from replay.offpolicy.evaluation import OffPolicy, OffPolicyEstimate
from replay.run.whatif import Divergence
from twin.cases.table_reader import Failure
from twin.settings.scenario_file import ObjectiveWeights

Shown = Callable[..., str]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    def show(how: Callable[..., None], *what: Any) -> str:
        how(Console(), *what)
        return capsys.readouterr().out

    return show


def test_files_that_were_not_read_are_told_together_and_a_dozen_that_held_nothing(shown: Shown) -> None:
    refused = tuple(FileResult(f"r{k}.csv", "set", skipped_reason="no reader knows it") for k in range(14))
    empty = tuple(FileResult(f"e{k}.csv", "set", "columns") for k in range(13))
    text = shown(data.ingest, IngestReport((*refused, *empty), 0.5, ("bandwidth was computed",)))
    assert "not read: 14 files" in text and "r0.csv and 13 more files like it: no reader knows it" in text
    assert "e11.csv" in text and "e12.csv" not in text and "... and 1 more; in --json" in text
    assert "bandwidth was computed" in text and "0 rows added" in text
    few = shown(data.ingest, IngestReport((refused[0], empty[0]), 0.5))
    assert "r0.csv" in few and "e0.csv" in few and "more" not in few


def test_rejected_rows_have_reasons_that_can_be_asked_for(shown: Shown) -> None:
    read = FileResult("a.csv", "set", "columns", rows_in=5, stored={"links": 3}, rejected=2)
    assert "select source_file, source_row, reason from rejects" in shown(
        data.ingest, IngestReport((read,), 0.5)
    )
    clean = FileResult("a.csv", "set", "columns", rows_in=5, stored={"links": 5})
    assert "rejects" not in shown(data.ingest, IngestReport((clean,), 0.5))


def test_an_empty_lake_says_what_to_do(shown: Shown) -> None:
    assert "twin ingest shipped" in shown(data.traces, {"columns": ["dataset"], "rows": []})


@pytest.mark.parametrize(
    ("left_out", "words"),
    [((), ""), (("a.zip",), "a.zip; --mirror"), (("a.zip", "b.zip", "c.zip"), "a.zip and 2 more; --mirror")],
)
def test_a_fetch_says_what_has_no_address(shown: Shown, left_out: tuple[str, ...], words: str) -> None:
    text = shown(data.fetched, Fetched("set", Path("there"), 3, 1, left_out, 2_000_000))
    assert "3 files came, 1 were there, 2.0 MB" in text and "twin ingest there" in text
    assert words in text and ("--mirror" in text) == bool(left_out)


def test_a_following_says_what_it_could_not_read(shown: Shown) -> None:
    text = shown(data.followed, Followed(2, 3, 1_000, 4, {"x.csv": "gone"}))
    assert "1,000 rows added, 4 rejected" in text and "not read: x.csv: gone" in text


def decision(**changes: Any) -> Any:
    usual = {
        "at_s": 60.0, "trigger": "period", "action": "hold", "reason": "nothing better", "chosen": None,
        "limit": None, "fallback": None, "tipping_text": (), "reward": {"total": None}, "candidates": (),
        "baselines": {}, "reasons": {"period": []}, "domains": ("a", "b"),
        "traffic_bytes": ((0.0, 1.0), (2.0, 0.0)),
    }  # fmt: skip
    explanation = Found(**usual | changes)
    return Found(
        run_id="run",
        number=3,
        explanation=explanation,
        reproduced=True,
        difference=None,
        aftermath={"tokens": 5},
    )


def test_a_decision_with_nothing_beside_it_is_short(shown: Shown) -> None:
    text = shown(show_decision.decision, decision())
    assert "run decision 3 at 60 s (period): reproduced" in text and "without it): -" in text
    assert "candidates" not in text and "baselines" not in text and "fallback" not in text


def test_what_set_a_decision_off_is_named() -> None:
    reasons: dict[str, list[object]] = {
        "failure": [{"link": [0, 2]}, {"domain": 1}, {"preempted_by": "urgent"}],
        "repair": [{"left_by": "first"}],
        "alarm": [[[0, 1], [2, 1]]],
        "change": [{"domains": [0, 2]}, [[1, 0]]],
        "period": [],
    }
    assert show_decision.trigger_lines(reasons, ("a", "b", "c")) == [
        "set off by failure: a > c, b, preempted by urgent",
        "set off by repair: left by first",
        "set off by alarm: a > b, c > b",
        "set off by change: a, c, b > a",
    ]


def test_a_decision_that_came_out_otherwise_says_so(shown: Shown) -> None:
    found = decision(
        fallback="deadline missed",
        tipping_text=("would move if B(a->b) < 2 Gb/s",),
        candidates=({"plan": "a:34L", "score": 0.5},),
        baselines={"static": {"answer": "hold", "problem": None}},
    )
    found.reproduced, found.difference = False, "payload.plan"
    text = shown(show_decision.decision, found)
    for words in ("not reproduced: payload.plan", "fallback: deadline missed", "B(a->b)", "a:34L", "static"):
        assert words in text, words


def test_rows_without_an_answer_are_listed_with_their_line_and_column(shown: Shown) -> None:
    failures = (Failure(1, 2, "tp", "not a number"), Failure(2, 3, "", "does not fit"))
    for how, found in (
        (estimate.answers, Found(rows=(), path=Path("cases.csv"), failures=failures)),
        (estimate.solutions, Found(rows=(), path=Path("cases.csv"), failures=failures)),
    ):
        text = shown(how, found)
        assert "2 rows without an answer" in text and "cases.csv:2 tp: not a number" in text
        assert "cases.csv:3: does not fit" in text and "limited by" not in text


def test_a_case_in_one_place_has_no_boundaries_to_show(shown: Shown) -> None:
    body = {"case": {"tp": 1}, "defaults": ["pp"], "answer": {"iter_s": 1.0}, "stages": [{"stage": 0}]}
    text = shown(estimate.explained, {**body, "boundaries": []})
    assert "stages" in text and "boundaries" not in text and "defaults taken: pp" in text


def compared(bound: Any, *problems: str) -> Any:
    rows = [
        Found(policy=f"p{k}", problem=problem, kpis=None, run_id=None) for k, problem in enumerate(problems)
    ]
    return Found(
        weights=ObjectiveWeights(),
        scenario="s",
        dataset="d",
        window="test",
        wall_s=3600.0,
        rows=rows,
        bound=bound,
        note="synthetic",
    )


def bound(tokens: float, synchronous: float, static: float = 5e5) -> Any:
    return Found(
        tokens=tokens, synchronous_tokens=synchronous, kept_tokens=static,
        regret_kept=lambda tokens: 1 - tokens / static if static else None, exact=False, utilisation=0.5,
        egress_usd=1.0, ceiling_tokens=2e6, capacity_tokens=4e9, timeline=((0, None), (1, None)),
    )  # fmt: skip


def test_a_comparison_names_who_could_not_run_and_the_bound_without_local_sgd(shown: Shown) -> None:
    text = shown(run.comparison, compared(bound(1e6, 8e5), "too little memory"))
    assert "p0: too little memory" in text and "bound (candidates)" in text and "bound, no local SGD" in text
    assert re.search(r"ceiling +1800", text)  # us a token: 3,600 s over 2e6 tokens
    assert "note: synthetic" in text and "capacity" in text and "0.90" in text  # 3,600 s over 4e9 tokens
    assert run.UNPROVEN not in text
    open_ = bound(1e6, 8e5)
    open_.ceiling_tokens = None
    assert "note: no ceiling was proven" in shown(run.comparison, compared(open_))
    same = shown(run.comparison, compared(bound(1e6, 1e6, static=0.0)))
    assert "no local SGD" not in same and "bound" in same
    nothing = shown(run.comparison, compared(bound(0.0, 0.0)))  # every link is dead
    assert "bound" in nothing and "local SGD" not in nothing


def test_an_audit_with_findings_lists_them(shown: Shown) -> None:
    report = Found(
        ok=False, run_id="run", events=7, findings=("chain: cut",), notes=("other code",), digest=None,
        chain_head=None,
    )  # fmt: skip
    text = shown(run.audit, report)
    assert "run: 1 finding, 7 events" in text and "chain: cut" in text and "note: other code" in text


def status_of(**changes: Any) -> dict[str, Any]:
    empty = {"runs": [], "active": None, "datasets": [], "lake_digest": "ab", "health": None}
    return {**empty, "health_problem": None, **changes}


def test_an_empty_store_says_what_to_do(shown: Shown) -> None:
    text = shown(status.status, status_of())
    assert (
        "none: the shipped one" in text and "none: twin ingest shipped" in text and "newest run" not in text
    )


def test_a_run_without_iterations_or_filters_has_its_other_figures(shown: Shown) -> None:
    figures = {"bias": None, "mape": None, "inside_80": None, "inside_95": None, "nis": None, "healthy": None}
    health = {
        "run": "r", "links": [{"src": "a", "dst": "b", "count": 0, **figures}], "horizons": [],
        "domains": [], "iteration": {"iterations": 0, "bias": None, "mape": None},
        "problem": "its data set has left the lake",
    }  # fmt: skip
    text = shown(status.status, status_of(health=health))
    assert "no NIS" in text and "left the lake" in text and "whole iterations" not in text
    damaged = shown(status.status, status_of(health_problem="00.json: was changed"))
    assert "newest run         00.json: was changed" in damaged and "NIS" not in damaged


@pytest.mark.parametrize(
    ("healthy", "nis", "word"), [(True, 1.0, "steady"), (False, 9.0, "drifting"), (False, 0.1, "calmer")]
)
def test_a_filter_is_steady_drifting_or_calmer(shown: Shown, healthy: bool, nis: float, word: str) -> None:
    row = {"src": "a", "dst": "b", "count": 1, "bias": 0.0, "mape": 0.0, "inside_80": 1.0, "inside_95": 1.0}
    health = {
        "run": "r", "links": [{**row, "nis": nis, "healthy": healthy}], "horizons": [], "domains": [],
        "iteration": {"iterations": 5, "bias": 0.1, "mape": 0.1}, "problem": None,
    }  # fmt: skip
    assert word in shown(status.status, status_of(health=health)).replace("steady from", "")


def test_policies_are_listed_with_and_without_checkpoints(shown: Shown) -> None:
    listed = {"policies": [{"name": "static", "summary": "stays"}], "checkpoints": [], "active": None}
    text = shown(training.policies, listed)
    assert "checkpoints" not in text and "active checkpoint  none: the shipped one" in text
    one = {
        "digest": "ab" * 32, "active": False, "records": [],
        "lineage": {"problem": "damaged", "data": [["x", 1], ["y", 1], ["z", 1]]},
    }  # fmt: skip
    text = shown(training.policies, {**listed, "checkpoints": [one]})
    assert "abababababab" in text and "damaged" in text and "x, y and 1 more" in text
    record = {
        "parent": None, "run_id": "s-retrain", "verdict": "promoted", "code": {"sources": "cd" * 32},
        "scores": {"challenger": {"tokens": 9.0}}, "data": {"window": "train", "traces": {"wan": "ef" * 32}},
    }  # fmt: skip
    text = shown(training.policies, {**listed, "checkpoints": [{**one, "records": [record]}]})
    for words in ("from scratch", "s-retrain", "promoted", "train efefefef", "cdcdcdcd"):
        assert words in text, words


def test_of_several_learners_the_first_has_the_result(shown: Shown) -> None:
    result = {
        "run": None, "checkpoint": "", "score": None, "seconds": 7.4, "updates": 0, "finished": True,
        "active": False, "replaced": None,
    }  # fmt: skip
    assert shown(training.trained, result) == ("trained along for 7 s; the first learner writes the result\n")
    first = {**result, "run": "r", "checkpoint": "ab" * 32, "score": 0.5, "updates": 4, "active": True}
    text = shown(training.trained, first)
    assert "training finished after 4 updates, 7 s" in text and f"{'ab' * 32} (active)" in text
    assert "in place of" not in text
    assert "in place of cd; `twin policies --rollback`" in shown(
        training.trained, {**first, "replaced": "cd"}
    )


def test_a_calibration_lists_what_is_interpolated_and_what_was_not_fitted(shown: Shown) -> None:
    fit = {"values": {"mfu": 0.5}, "rows": 3, "error_before": 0.2, "error_after": 0.01}
    body = {
        "gpus": {"A100": {"mfu": fit}}, "blocks": {}, "unfitted": [], "lake_digest": "ab", "digest": "cd",
    }  # fmt: skip
    text = shown(estimate.calibration, body)
    assert "mfu 0.5" in text and "interpolated" not in text and "not fitted" not in text
    left = {"gpu": "V100", "what": "mfu", "rows": 1, "why": "too few"}
    text = shown(estimate.calibration, {**body, "blocks": {"A100": ["gpt"]}, "unfitted": [left]})
    assert "A100: 1 measured blocks are interpolated: gpt" in text and "too few" in text


def test_the_first_event_that_differs_is_named(shown: Shown) -> None:
    text = shown(whatif.rerun, Rerun("run", 5, 5, "payload.plan is 1, made again 2", ("other code",)))
    assert "event 5 is the first that differs: payload.plan" in text and "note: other code" in text
    assert "equal in every byte" in shown(whatif.rerun, Rerun("run", 9, None, None, ()))


def test_two_runs_part_where_their_plans_do(shown: Shown) -> None:
    split = Divergence(2, 60.0, "period", "a:34L", "a:34L gains 0.1", "", "holds")
    kpis = Found(numbers=lambda: {"tokens": 100})
    found = Found(
        base_policy="mpc", policy="mpc", base_run="r", run_id="q", divergence=split, base=kpis, other=kpis,
        differences={"tokens": 0}, verdicts=(), notes=("what if",), base_branch=None, base_links=(),
    )  # fmt: skip
    text = shown(whatif.what_if, found)
    assert "they part at decision 2, 60 s (period):" in text and "note: what if" in text
    assert "mpc, as it was: a:34L gains 0.1" in text  # the reason names the plan: not told twice
    assert "mpc, what if: no plan: holds" in text and "already" not in text
    found.base_branch, found.base_links = {"run": "p", "decision": 3}, ("what if a > b: bandwidth x 0.5",)
    text = shown(whatif.what_if, found)
    assert "r is a what-if itself: it leaves p at decision 3" in text
    assert "r has already: what if a > b: bandwidth x 0.5" in text


def test_an_estimate_that_cannot_be_made_is_a_dash(shown: Shown) -> None:
    estimates = (
        OffPolicyEstimate("weighted", None, None, None),
        OffPolicyEstimate("direct", 110.0, 90.0, 130.0),
    )
    found = OffPolicy(("r",), "mpc", 100.0, 4, False, 0.5, 0.25, 1.0, estimates, ("one log",))
    lines = shown(whatif.offpolicy, found).splitlines()
    (missing,) = [line for line in lines if line.startswith("weighted")]
    assert missing.split()[1:] == ["-"] * 4
    assert any("+10.00 %" in line for line in lines) and "note: one log" in lines
