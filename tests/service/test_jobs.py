"""The queue that a service keeps: changes, what a forecast says of jobs that wait, and its routes."""

from collections.abc import Iterator
from typing import Any

import pytest

from ingest.core.errors import UsageError
from service.api.app import make_app
from service.session import job_forecast
from service.session.job_book import BookedJob, JobBook
from service.session.job_forecast import JobsNow
from service.session.session import Session
from tests.support.serving import api_settings, asking, toy_session

S = 10**9
NOW = 1_000 * S
DOMAINS = {"d0": 4, "d1": 2}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("jobs"), patch)
        yield one
        one.close()


def submit(name: str, gpus: int = 1, estimate_s: float = 100, **more: Any) -> dict[str, Any]:
    return {"kind": "submit", "id": name, "gpus": gpus, "estimate_s": estimate_s, **more}


def told(book: JobBook, *items: Any) -> dict[str, Any]:
    changes, answer = book.judged(items, NOW)
    book.take(changes)
    return answer


def test_a_job_is_known_by_its_id() -> None:
    book = JobBook(DOMAINS)
    start = {"kind": "start", "id": "a", "gpus": {"d0": 2}}
    assert told(book, submit("a", 2), submit("a", 2), start, start) == {
        "accepted": 2, "unchanged": 2, "refused": [],
    }  # fmt: skip
    assert told(book, submit("a", 2), {"kind": "end", "id": "a"}) == {
        "accepted": 1, "unchanged": 1, "refused": [],
    }  # fmt: skip
    assert told(book, {"kind": "end", "id": "a"}, submit("a", 2))["unchanged"] == 2
    assert not book.open and book.closed["a"].on == (2, 0)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (None, "not a JSON object"),
        ({"kind": []}, "there are submit, cancel, start, end"),
        ({"kind": "end", "id": "../x"}, "a name has 1 to 64 letters"),
        (submit("b", 5), "gpus: a whole number from 1 to 4"),
        (submit("b", True), "gpus: a whole number"),
        (submit("b", 1, float("nan")), "estimate_s: a number"),
        (submit("b", 1, 10**400), "estimate_s: a number"),
        (submit("b", user=3), "user '3'"),
        (submit("b", colour=1), "unknown field 'colour'"),
        (submit("a", 2, 101), "submitted with other figures"),
        (submit("b", epoch_ns=NOW + 60 * S), "from the future: 60.0 s"),
        ({"kind": "end", "id": "none"}, "no job none was submitted"),
        ({"kind": "end", "id": "a"}, "end: job a is waiting, not running"),
        ({"kind": "start", "id": "a", "gpus": {"d9": 2}}, "unknown domain 'd9': there are d0, d1"),
        ({"kind": "start", "id": "a", "gpus": {"d0": 1}}, "1 GPUs; job a asked for 2"),
        ({"kind": "start", "id": "a", "gpus": {"d0": 2}, "epoch_ns": 5}, "before it was submitted"),
    ],
)
def test_a_faulty_item_is_named_and_the_good_ones_kept(item: Any, reason: str) -> None:
    book = JobBook(DOMAINS)
    told(book, submit("a", 2))
    answer = told(book, submit("good"), item)
    assert (answer["accepted"], [one["item"] for one in answer["refused"]]) == (1, [1])
    assert reason in answer["refused"][0]["reason"] and set(book.open) == {"a", "good"}


def test_a_full_queue_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.session.job_book.MOST_OPEN", 2)
    answer = told(JobBook(DOMAINS), submit("a"), submit("b"), submit("c"), {"kind": "cancel", "id": "a"})
    assert answer["accepted"] == 3 and "wait or run already" in answer["refused"][0]["reason"]


def test_what_is_carried_makes_the_same_book() -> None:
    book, other = JobBook(DOMAINS), JobBook(DOMAINS)
    told(book, submit("a", 2), submit("b"), submit("c"), {"kind": "start", "id": "a", "gpus": {"d1": 2}})
    told(book, {"kind": "cancel", "id": "c"})
    other.take(book.carried())
    assert other.open == book.open and not other.closed


def job(name: str, gpus: int, estimate_s: float, submitted_s: float = 0.0) -> BookedJob:
    return BookedJob(name, gpus, estimate_s, "", "waiting", round(submitted_s * S))


def running(name: str, on: tuple[int, ...], estimate_s: float, started_s: float) -> BookedJob:
    return BookedJob(name, sum(on), estimate_s, "", "running", 0, round(started_s * S), None, on)


def test_forecasts_by_hand() -> None:
    """d0: 3 of 4 GPUs run until 100 s from now; d1: both until 40 s. a needs 4, b and c one GPU each."""
    jobs = (
        running("r0", (3, 0), 200, 900), running("r1", (0, 2), 50, 990),
        job("a", 4, 30, 500), job("b", 1, 90, 600), job("c", 1, 500, 700),
    )  # fmt: skip
    now = JobsNow(NOW, ("d0", "d1"), jobs, (4, 2), (0, 0))
    easy = job_forecast.forecast(now, "easy")
    assert {name: (one["starts_in_s"], one["domain"]) for name, one in easy.items()} == {
        "a": (100.0, "d0"), "b": (0.0, "d0"), "c": (40.0, "d1"),
    }  # fmt: skip
    assert easy["a"]["reason"] == "it needs 4 GPUs in one domain; at most 1 are free now, in d0"
    assert easy["b"]["reason"] == "it fits now" and "jobs before it start first" in easy["c"]["reason"]
    fcfs = job_forecast.forecast(now, "fcfs")
    assert {name: one["starts_in_s"] for name, one in fcfs.items()} == {"a": 100.0, "b": 100.0, "c": 100.0}
    with pytest.raises(UsageError, match="unknown"):
        job_forecast.forecast(now, "soonest")


def test_an_end_that_nobody_knows_is_said() -> None:
    jobs = (running("late", (2, 0), 10, 0), job("a", 4, 30), job("b", 2, 30))
    found = job_forecast.forecast(JobsNow(NOW, ("d0", "d1"), jobs, (4, 2), (0, 2)), "easy")
    assert found["a"]["starts_in_s"] is None
    whose = "the job that is followed, job late, whose end nobody knows"
    assert found["a"]["reason"] == f"it waits for GPUs of {whose}"
    assert (found["b"]["starts_in_s"], found["b"]["domain"]) == (0.0, "d0")
    left = job_forecast.forecast(JobsNow(NOW, ("d0", "d1"), jobs[1:], (4, 2), (4, 2), 25.0), "easy")
    assert (left["a"]["starts_in_s"], left["b"]["starts_in_s"], left["b"]["domain"]) == (25.0, 25.0, "d1")
    for left_s in (1e18, float("inf")):  # beyond what the clock of a simulated queue holds; a dead link
        far = job_forecast.forecast(JobsNow(NOW, ("d0", "d1"), jobs[1:], (4, 2), (4, 2), left_s), "easy")
        assert far["a"]["starts_in_s"] is far["b"]["starts_in_s"] is None
    dead = job_forecast.forecast(JobsNow(NOW, ("d0", "d1"), jobs[1:], (0, 0), (0, 0)), "easy")
    assert dead["b"]["reason"] == "it needs 2 GPUs in one domain; at most 0 are alive in one"


def test_the_routes_take_changes_and_list_jobs(session: Session) -> None:
    with asking(make_app(session, api_settings())) as client:
        answer = client.post("/v1/jobs", json=[submit("one"), submit("two", 4, 60), None])
        assert answer.json() == {
            "accepted": 2, "unchanged": 0, "refused": [{"item": 2, "reason": "not a JSON object"}],
        }  # fmt: skip
        assert client.post("/v1/jobs", json=submit("one")).json()["unchanged"] == 1
        client.post("/v1/jobs", json=[{"kind": "start", "id": "one", "gpus": {"d1": 1}}])
        listed = client.get("/v1/jobs", params={"present_job_tokens_left": 10**6}).json()
        found = {one["id"]: one for one in listed["jobs"]}
        assert found["one"]["state"] == "running" and found["one"]["on"] == {"d1": 1}
        assert found["two"]["state"] == "waiting" and found["two"]["starts_in_s"] is not None
        cut = client.post("/v1/jobs", content=b"{", headers={"Content-Type": "application/json"})
        assert cut.status_code == 400
        assert client.get("/v1/jobs", params={"scheduler": "best"}).status_code == 422


def test_jobs_go_on_waiting_in_the_next_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.change_jobs([submit("kept")]).result(20)
    session.change_mode("active", "test").result(20)  # orders the plan
    session.close()
    again = toy_session(session.store, monkeypatch)
    assert again.run_id == session.run_id and again.jobs.open == session.jobs.open
    again.close()
    monkeypatch.setattr("service.session.resumption.code_version", lambda: {"other": "code"})
    new = toy_session(session.store, monkeypatch)
    assert new.world.jobs[""].orders.next_number == 1
    assert new.run_id != session.run_id and new.jobs.open == session.jobs.open
    assert "kept" in new.jobs.open
    new.close()
