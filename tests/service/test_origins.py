"""What a web page may make a browser send to the service: nothing that is answered, and nothing without the
token. The same with a real browser: `test_browsers.py`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from ingest.core.errors import UsageError
from service.api.app import make_app
from service.api.origins import allowed_hosts, host_name, named_by
from service.console import routes
from service.session.session import Session
from tests.support.serving import TOKEN, api_settings, asking, bearer, toy_session

JSON = {"Content-Type": "application/json"}
CHANGES = {
    "/v1/observations": b"[]",
    "/v1/jobs": b'{"kind": "submit", "id": "foreign", "gpus": 1, "estimate_s": 60}',
    "/v1/decide": b"",
    "/v1/mode": b'{"mode": "active"}',
    "/v1/rollback": b"",
    "/v1/renew": b"",
}
"""Requests that change something, with a body that is right."""
LOOKS = ("/", "/health", "/ready", "/metrics", "/v1/state", "/v1/decision", "/v1/order", "/openapi.json")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("origins"), patch)
        yield one
        one.close()


def client_of(session: Session, token: str = TOKEN, **more: Any) -> TestClient:
    app = make_app(session, api_settings(**more))
    routes.mount(app)
    return asking(app, token)


@pytest.fixture(scope="module")
def client(session: Session) -> Iterator[TestClient]:
    with client_of(session) as one:
        yield one


@pytest.fixture(scope="module")
def stranger(session: Session) -> Iterator[TestClient]:
    """A client of this machine without a token."""
    with client_of(session, "") as one:
        yield one


FOREIGN_HOSTS = (
    *("evil.example", "evil.example:8712", "127.0.0.1.evil.example", "localhost.evil.example", "10.1.2.3"),
    *("0.0.0.0", "[::2]:8712", "127.0.0.1@evil.example", "2130706433", "127.1", "", " "),
    *("localhost:80:80", "a b"),
)


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_no_route_answers_under_a_foreign_name(client: TestClient, host: str) -> None:
    for path in LOOKS:
        answer = client.get(path, headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]) == (403, "ForeignHost"), path
    for path, body in CHANGES.items():
        assert client.post(path, content=body, headers={**JSON, "Host": host}).status_code == 403, path


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8712", "localhost.", "127.0.0.1:1", "127.8.9.1", "[::1]:8712", "[::1]"]
)
def test_names_of_the_loopback_address_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/ready", headers={"Host": host}).status_code == 200


def test_other_names_are_those_that_were_allowed(session: Session) -> None:
    with client_of(session, hosts=allowed_hosts(["Twin.Example", "10.0.0.7"])) as client:
        for host in ("twin.example:8712", "TWIN.example.", "10.0.0.7:8712", "localhost"):
            assert client.get("/ready", headers={"Host": host}).status_code == 200
        for host in ("example", "a.twin.example", "10.0.0.8"):
            assert client.get("/ready", headers={"Host": host}).status_code == 403
    for wrong in ("http://twin.example", "twin.example:80", "*", "", "a/b", "a b"):
        with pytest.raises(UsageError, match="--allow-host"):
            allowed_hosts([wrong])
    assert allowed_hosts(["::1", "[fe80::1]"]) == ("::1", "fe80::1")
    assert [named_by(host) for host in ("0.0.0.0", "::", "twin", "10.0.0.7", "fe80::1%lo")] == [
        (), (), ("twin",), ("10.0.0.7",), (),
    ]  # fmt: skip
    assert host_name("a" * 300) is None


FOREIGN_ORIGINS = (
    *("http://evil.example", "http://127.0.0.1:1", "http://localhost", "null", "", "file://", "127.0.0.1"),
    *(
        "http://127.0.0.1.evil.example",
        "http://user@127.0.0.1",
        "http://127.0.0.1/",
        "chrome-extension://abc",
    ),
    *("http://[", "http://127.0.0.1, http://127.0.0.1"),
)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_page_of_another_origin_is_refused_also_with_the_token(client: TestClient, origin: str) -> None:
    for path, body in CHANGES.items():
        answer = client.post(path, content=body, headers={**JSON, "Origin": origin})
        assert (answer.status_code, answer.json()["error"]) == (403, "ForeignOrigin"), path
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/v1/state", headers={"Origin": origin}).status_code == 403
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    assert client.options("/v1/mode", headers=preflight).status_code == 403


def test_our_own_page_is_answered_also_behind_a_proxy_that_ends_tls(client: TestClient) -> None:
    for origin in ("http://127.0.0.1", "https://127.0.0.1", "HTTP://127.0.0.1"):
        assert client.post("/v1/decide", headers={"Origin": origin}).status_code == 200, origin
    head = {"Host": "localhost:9000", "Origin": "http://localhost:9000"}
    assert client.post("/v1/decide", headers=head).status_code == 200


def test_a_browser_that_says_another_site_asks_is_refused(client: TestClient) -> None:
    for site in ("cross-site", "same-site", "anything"):
        for path in LOOKS:
            assert client.get(path, headers={"Sec-Fetch-Site": site}).status_code == 403
    opens = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/", headers=opens).status_code == 200  # a link that opens the console
    assert client.get("/v1/state", headers=opens).status_code == 403
    assert client.get("/", headers={**opens, "Sec-Fetch-Dest": "iframe"}).status_code == 403
    for site in ("same-origin", "none"):
        assert client.get("/v1/state", headers={"Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", None],
)
def test_a_body_that_is_not_declared_as_json_is_refused(client: TestClient, kind: str | None) -> None:
    head = {} if kind is None else {"Content-Type": kind}
    for path, body in CHANGES.items():
        answer = client.post(path, content=body or b"{}", headers=head)
        assert (answer.status_code, answer.json()["error"]) == (415, "MediaType"), path
    lines = {"Content-Type": "application/x-ndjson"}
    assert client.post("/v1/mode", content=b"{}", headers=lines).status_code == 415
    if kind is not None:
        assert client.post("/v1/decide", headers=head).status_code == 415  # an empty form
    assert client.post("/v1/decide", content=iter([b"{}"]), headers=head).status_code == 415  # chunked


def test_what_changes_anything_needs_the_token(client: TestClient, stranger: TestClient) -> None:
    for path, body in CHANGES.items():
        for head in ({}, bearer("wrong"), bearer(""), {"Cookie": "twin-=wrong"}):
            answer = stranger.post(path, content=body, headers={**JSON, **head})
            assert answer.status_code == 401, (path, head)
        assert client.post(path, content=body, headers=JSON).status_code != 401, path
    assert "STORE/service/token" in stranger.post("/v1/decide").json()["message"]


def test_programs_of_this_machine_look_and_ask_without_it(stranger: TestClient) -> None:
    for path in LOOKS:
        assert stranger.get(path).status_code == 200, path
    assert stranger.get("/v1/me").json() == {"name": "anonymous", "roles": ["read"]}
    assert stranger.post("/v1/dry-run", json={}).status_code == 200  # as the plug-in of Slurm asks
    assert stranger.get("/v1/state", headers=bearer("wrong")).status_code == 401


def test_the_printed_address_becomes_a_cookie(session: Session) -> None:
    with client_of(session, "") as browser:
        opened = browser.get(f"/?token={TOKEN}", follow_redirects=False)
        assert (opened.status_code, opened.headers["location"]) == (303, "./")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and cookie.startswith("twin-=")
        assert browser.get("/v1/me").json()["name"] == "owner"
        own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
        assert browser.post("/v1/decide", headers=own).status_code == 200
        foreign = {"Origin": "http://127.0.0.1:8898", "Sec-Fetch-Site": "same-site"}  # gets the cookie, too
        assert browser.post("/v1/decide", headers=foreign).status_code == 403
        browser.get("/?token=", follow_redirects=False)
        assert browser.get("/v1/me").json()["name"] == "anonymous"
        refused = browser.get("/?token=wrong", follow_redirects=False)
        assert refused.status_code == 303 and "set-cookie" not in refused.headers


def test_the_cookie_is_named_by_its_port_and_secure_over_tls(session: Session) -> None:
    with client_of(session, "") as browser:
        head = {"Host": "localhost:8712"}
        opened = browser.get(f"/?token={TOKEN}", headers=head, follow_redirects=False)
        assert opened.headers["set-cookie"].startswith("twin-8712=")
        secure = browser.get(f"https://127.0.0.1/?token={TOKEN}", follow_redirects=False)
        assert "Secure" in secure.headers["set-cookie"]
        plain = {"Origin": "http://127.0.0.1"}
        assert browser.post("https://127.0.0.1/v1/decide", headers=plain).status_code == 403


def test_the_service_names_the_client_in_its_log(client: TestClient, session: Session) -> None:
    client.post("/v1/mode", content=json.dumps({"mode": "hold", "reason": "test"}), headers=JSON)
    rows = client.get("/v1/history?what=events").json()["rows"]
    assert [row["client"] for row in rows if row["event"] == "mode_changed"][-1] == "owner"
    client.post("/v1/mode", content=b'{"mode": "shadow"}', headers=JSON)


def test_a_list_of_every_changing_route_is_tried(client: TestClient) -> None:
    """A new route that changes something has to be added to `CHANGES`."""
    posts = {path for path, entry in client.get("/openapi.json").json()["paths"].items() if "post" in entry}
    assert posts - set(CHANGES) == {"/v1/dry-run", "/v1/admission", "/v1/queue"}
