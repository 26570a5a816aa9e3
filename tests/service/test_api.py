"""The service over HTTP, in this process: every route, who may call it, and what faulty requests get."""

import json
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ingest.core.errors import InputError
from service.api.app import ApiSettings, make_app
from service.api.limits import LimitRate, RequestLimits
from service.api.tokens import Tokens, parsed
from service.session.session import Session
from tests.support.serving import api_settings, asking, links, toy_session

LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("api"), patch)
        yield one
        one.close()


@pytest.fixture(scope="module")
def client(session: Session) -> Iterator[TestClient]:
    with asking(make_app(session, api_settings())) as one:
        yield one


def pushed(client: TestClient, items: Any, **head: str) -> Any:
    answer = client.post("/v1/observations", json=items, headers=head)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_batch_is_taken_as_a_list_as_an_object_and_as_lines(client: TestClient) -> None:
    assert pushed(client, links())["accepted"] == 6
    assert pushed(client, {"observations": links()})["accepted"] == 6
    body = "\n".join([*map(json.dumps, links()), "no json", '{"kind": "link", "epoch_ns": NaN}', ""])
    answer = client.post("/v1/observations", content=body, headers=LINES).json()
    assert (answer["accepted"], [refused["item"] for refused in answer["refused"]]) == (6, [6, 7])


def test_a_key_makes_a_batch_once(client: TestClient) -> None:
    batch = links()
    first, again = (pushed(client, batch, **{"Idempotency-Key": "k1"}) for _ in range(2))
    assert first["key"] == "k1" and not first["duplicate"]
    assert again == {**first, "duplicate": True}


def test_decisions_can_be_read_asked_for_and_supposed(client: TestClient) -> None:
    made = client.post("/v1/decide").json()
    assert made["made"]
    current = client.get("/v1/decision").json()
    assert current["decision"] == made["decision"] and current["mode"] == "shadow"
    dead = [{"src": "d0", "dst": "d1", "bandwidth_bps": 0}]
    supposed = client.post("/v1/dry-run", json={"links": dead, "gpus": {"d2": 0}}).json()
    assert supposed["why_not_now"] and supposed["plan_in_force"] == current["plan"]
    assert client.post("/v1/dry-run").json()["action"] in ("hold", "turn", "move")
    assert client.get("/v1/decision").json()["decision"] == made["decision"]


def test_admission_says_when_and_how_fast(client: TestClient) -> None:
    job = {"model": "gpt2-1.5b", "job": {"global_batch": 8}, "tokens": 10**6}
    answer = client.post("/v1/admission", json=job).json()
    fitting = answer["now"] or answer["alone"]
    assert fitting["tokens_per_s"] > 0 and fitting["whole"]["seconds"] == pytest.approx(
        -(-(10**6) // (fitting["tokens_per_s"] * fitting["iteration_s"])) * fitting["iteration_s"]
    )
    shares = fitting["plan"]["shares"]
    assert fitting["placement"] == [
        {"domain": f"d{share['domain']}", "gpus": len(share["gpus"])} for share in shares
    ]
    fewer = {**job, "gpus": {"d0": 0}, "plan": fitting["plan"]}
    supposed = client.post("/v1/admission", json=fewer).json()
    assert supposed["given_iteration_s"] == pytest.approx(fitting["iteration_s"])
    assert supposed["free_gpus"]["d0"] == 0
    assert "d0" not in {one["domain"] for one in supposed["alone"]["placement"]}
    for wrong in ({"gpus": {"mars": 1}}, {"plan": {"shares": []}}, {"plan": {**fitting["plan"], "dp": 7}}):
        assert 400 <= client.post("/v1/admission", json={**job, **wrong}).status_code < 500
    too_large = client.post("/v1/admission", json={"model": "gpt3-175b"}).json()
    assert too_large["starts_in_s"] is None and too_large["reason"].startswith("no plan fits")


def test_a_queue_says_where_and_when_each_job_starts_or_why_not(client: TestClient) -> None:
    small = {"model": "gpt2-1.5b", "job": {"global_batch": 8}, "tokens": 10**6}
    jobs = [small, {"model": "gpt3-175b"}, small, {**small, "tokens": None}, small]
    asked = {"jobs": jobs, "present_job_tokens_left": 10**5}
    found = client.post("/v1/queue", json=asked).json()["jobs"]
    assert found[1]["starts_in_s"] is None and found[1]["reason"].startswith("no plan fits")
    started = [found[0], found[2], found[3]]
    alive = {domain["name"]: domain["alive"] for domain in client.get("/v1/state").json()["domains"]}
    starts = [job["starts_in_s"] for job in started]
    assert starts == sorted(starts)
    for job in started:
        beside = [one for one in started if one["starts_in_s"] <= job["starts_in_s"]
                  and (one["ends_in_s"] is None or one["ends_in_s"] > job["starts_in_s"])]  # fmt: skip
        assert all(sum(one["gpus"][name] for one in beside) <= alive[name] for name in alive)
    for job in started[:2]:
        assert job["ends_in_s"] == pytest.approx(job["starts_in_s"] + job["plan"]["whole"]["seconds"])
    assert started[2]["ends_in_s"] is None  # nobody said how much it trains
    assert found[4]["starts_in_s"] is None or found[4]["starts_in_s"] >= starts[-1]
    alone = client.post("/v1/queue", json={"jobs": [small]}).json()["jobs"][0]
    assert alone["reason"] == "it fits now" or "the present job, whose end nobody said" in alone["reason"]


def test_the_hook_gets_the_order_and_answers_it(client: TestClient) -> None:
    assert client.get("/v1/order", params={"job": ""}).json() == {"order": None}
    promoted = client.post("/v1/mode", json={"mode": "active", "reason": "trial"}).json()
    order = client.get("/v1/order?job=").json()["order"]
    assert order == promoted["order"] and order["plan"]["shares"]
    answered = {"kind": "plan", "job": "", "epoch_ns": time.time_ns(), "order": order["number"],
                "state": "applied", "pause_s": 1.0}  # fmt: skip
    assert pushed(client, [answered])["accepted"] == 1
    assert client.get("/v1/order").json() == {"order": None}
    assert client.post("/v1/rollback").status_code == 404
    assert client.post("/v1/mode", json={"mode": "shadow"}).json()["mode"] == "shadow"
    assert client.post("/v1/rollback", json={"reason": "x"}).status_code == 409
    events = client.get("/v1/history", params={"what": "events"}).json()["rows"]
    assert [row["event"] for row in events][-5:] == [
        "mode_changed", "order_given", "order_closed", "plan_applied", "mode_changed",
    ]  # fmt: skip


def test_state_and_history_name_domains_and_links(client: TestClient) -> None:
    pushed(client, [*links(), {"kind": "step", "epoch_ns": time.time_ns(), "step": 7, "seconds": 2.5}])
    state = client.get("/v1/state").json()
    assert [domain["name"] for domain in state["domains"]] == ["d0", "d1", "d2"]
    link = state["links"][0]
    assert (link["src"], link["dst"]) == ("d0", "d1") and link["last"]["bandwidth_bps"] == 2e9
    assert link["low95_bps"][1] < link["low80_bps"][1] < link["forecast_bps"][1] < link["high80_bps"][1]
    assert state["job"]["steps"] == 7 and state["job"]["last_step_s"] == 2.5
    rows = client.get("/v1/history", params={"what": "links", "src": "d0", "dst": "d1", "limit": 2}).json()
    assert [(row["src"], row["dst"]) for row in rows["rows"]] == [("d0", "d1")] * 2
    assert client.get("/v1/history?what=steps").json()["rows"][-1]["seconds"] == 2.5


def test_metrics_are_those_of_the_run(client: TestClient) -> None:
    before = client.get("/v1/state").json()["decisions"]
    client.post("/v1/decide")
    text = client.get("/metrics").text
    assert f"twin_decisions_total {before + 1:.1f}" in text
    assert 'twin_filter_innovation_ratio{dst="d1",src="d0"}' in text
    assert "twin_decision_latency_seconds_bucket" in text and "twin_queue_requests" in text
    assert 'twin_forecast_coverage_ratio{horizon="0",interval="80"}' in text


def test_health_ready_and_openapi(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json()["status"] == "ready"
    document = client.get("/openapi.json").json()
    assert {"/v1/observations", "/v1/decision", "/v1/order", "/v1/stream"} <= document["paths"].keys()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/observations", b"{", 400),
        ("POST", "/v1/observations", b"5", 400),
        ("POST", "/v1/observations", b'{"observations": 1}', 400),
        ("POST", "/v1/observations", b"\xff\xfe", 400),
        ("POST", "/v1/observations", b"[" * 100_000, 400),
        ("POST", "/v1/observations", b"x" * 3000, 413),
        ("POST", "/v1/mode", b'{"mode": "fast"}', 422),
        ("POST", "/v1/mode", b"", 422),
        ("POST", "/v1/dry-run", b'{"links": [{"src": "d0", "dst": "d9", "bandwidth_bps": 1}]}', 404),
        ("POST", "/v1/dry-run", b'{"links": [{"src": "d0", "dst": "d1", "bandwidth_bps": -1}]}', 422),
        ("POST", "/v1/dry-run", b'{"surprise": 1}', 422),
        ("POST", "/v1/admission", b'{"model": "no-such-model"}', 409),
        ("POST", "/v1/admission", b'{"model": "gpt2-1.5b", "job": {"global_batch": "many"}}', 409),
        ("GET", "/v1/order?job=other", b"", 404),
        ("GET", "/v1/history?what=all", b"", 422),
        ("GET", "/v1/history?what=links&src=d9", b"", 404),
        ("GET", "/v1/history?since=nan", b"", 422),
        ("GET", "/nowhere", b"", 404),
        ("DELETE", "/v1/decision", b"", 405),
    ],
)
def test_a_faulty_request_is_named_and_never_a_fault_of_ours(
    session: Session, method: str, path: str, body: bytes, status: int
) -> None:
    most = RequestLimits(body_bytes=2000 if status == 413 else 10**6)
    with asking(make_app(session, api_settings(limits=most)), raise_server_exceptions=True) as client:
        answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["schema"] == "twin.error/1" and answer.json()["message"]


# -- tokens and limits


def token_file(path: Path, **tokens: str) -> Path:
    """Writes a file with a token of each name, which is the token, too; the value is the rest of the line."""
    lines = ["# tokens", ""]
    for name, rest in tokens.items():
        roles, _, until = rest.partition(" ")
        lines.append(f"{name} {roles} {sha256(name.encode()).hexdigest()} {until}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def guarded(session: Session, tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Asks with the token of a name, and returns the status."""
    path = token_file(
        tmp_path / "tokens", eye="read", hand="push", head="decide", boss="admin", old="admin 2001-01-01"
    )
    with asking(make_app(session, ApiSettings(Tokens(path))), "") as client:

        def ask(name: str, method: str, url: str, **words: Any) -> int:
            head = {"Authorization": f"Bearer {name}"} if name else {}
            return client.request(method, url, headers=head, **words).status_code

        yield ask


def test_a_token_may_do_what_its_roles_say(guarded: Callable[..., int]) -> None:
    allowed = {
        ("GET", "/v1/decision"): {"eye", "head", "boss"},
        ("GET", "/metrics"): {"eye", "head", "boss"},
        ("POST", "/v1/dry-run"): {"eye", "head", "boss"},
        ("GET", "/v1/order"): {"hand", "boss"},
        ("POST", "/v1/observations"): {"hand", "boss"},
        ("POST", "/v1/decide"): {"head", "boss"},
        ("POST", "/v1/mode"): {"boss"},
        ("POST", "/v1/rollback"): {"boss"},
    }
    bodies = {"/v1/observations": [], "/v1/mode": {"mode": "shadow"}}
    for (method, url), names in allowed.items():
        words = {"json": bodies[url]} if url in bodies else {}
        for name in ("eye", "hand", "head", "boss"):
            assert (guarded(name, method, url, **words) == 403) == (name not in names), (name, url)
        for name in ("", "nobody", "old"):
            assert guarded(name, method, url, **words) == 401
    assert guarded("", "GET", "/health") == guarded("", "GET", "/ready") == 200


def test_tokens_are_read_again_when_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.tokens.LOOK_S", 0.0)
    path = token_file(tmp_path / "tokens", eye="read")
    tokens = Tokens(path)
    assert tokens.client("eye") is not None and tokens.client("hand") is None
    time.sleep(0.01)
    token_file(path, hand="push")
    assert tokens.client("eye") is None and tokens.client("hand") is not None
    time.sleep(0.01)
    path.write_text("nonsense")
    assert tokens.client("hand") is not None and "NAME ROLES SHA256" in tokens.problem


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("eye read", "a line is NAME ROLES SHA256"),
        ("eye read 0123", "a line is NAME ROLES SHA256"),
        (f"eye reader {'0' * 64}", "no role 'reader'"),
        (f"eye read {'0' * 64} soon", "'soon' is no date"),
    ],
)
def test_a_faulty_line_of_tokens_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# tokens\n{line}\n")
    with pytest.raises(InputError, match=message) as caught:
        parsed(path)
    assert f"{path}:2" in str(caught.value)


def test_an_address_that_asks_too_often_is_told_to_wait(session: Session) -> None:
    with asking(make_app(session, api_settings(limits=RequestLimits(per_s=1, burst=3)))) as client:
        answers = [client.get("/health") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].headers["retry-after"] == "1"


def test_rates_of_addresses_are_apart_and_grow_back() -> None:
    now = [0.0]
    limit = LimitRate(lambda *_: None, RequestLimits(per_s=2, burst=1), lambda: now[0])  # type: ignore[arg-type,return-value]
    assert [limit._allowed("a"), limit._allowed("a"), limit._allowed("b")] == [True, False, True]
    now[0] = 0.5
    assert limit._allowed("a")
