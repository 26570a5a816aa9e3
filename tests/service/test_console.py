"""The console without a browser: its files, what they may load, who gets figures, and what these are."""

import re
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.api.app import ApiSettings, make_app
from service.api.tokens import Tokens
from service.console import routes
from service.console.assets import STATIC, assets
from service.session.session import Session
from tests.support.serving import links, toy_session

OWN = sorted(path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("console"), patch)
        yield one
        one.close()


def opened(session: Session, tokens: Path | None = None) -> TestClient:
    app = make_app(session, ApiSettings(Tokens(tokens)))
    routes.mount(app)
    return TestClient(app)


@pytest.fixture(scope="module")
def client(session: Session) -> Iterator[TestClient]:
    with opened(session) as one:
        yield one


def test_every_file_has_its_type_a_policy_and_an_etag_that_is_known_again(client: TestClient) -> None:
    kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript"}
    for name in ("", *(f"console/{name}" for name in assets())):
        answer = client.get(f"/{name}")
        assert answer.status_code == 200, name
        wanted = kinds.get(PurePosixPath(name or "x.html").suffix, "image/svg+xml")
        assert answer.headers["content-type"].split(";")[0] == wanted
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = client.get(f"/{name}", headers={"If-None-Match": f'"other", W/{answer.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
    assert {"app.js", "report.css", "uPlot.iife.min.js", "vendor/preact.mjs"} <= set(assets())


@pytest.mark.parametrize("name", ["../page.py", "..%2fpage.py", "vendor/README.md", "vendor", "", "x.js"])
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    answer = client.get(f"/console/{name}")
    assert answer.status_code == 404 and answer.json()["schema"] == "twin.error/1"


def test_the_files_load_nothing_from_elsewhere_and_make_no_markup_of_text() -> None:
    for path in OWN:
        text = path.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|[\"'(]//\w", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", text)
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>(.*?)</script>", page) == ["", ""] and "<style" not in page
    assert not re.search(r"\s(on\w+|style)=", page)


def test_every_import_and_every_file_of_the_page_is_there() -> None:
    named = re.findall(r'(?:src|href)="console/([^"]+)"', (STATIC / "index.html").read_text(encoding="utf-8"))
    imported = {
        (path.parent / target).resolve().relative_to(STATIC).as_posix()
        for path in OWN
        if path.suffix == ".js"
        for target in re.findall(r'^import .*? from "([^"]+)";$', path.read_text(encoding="utf-8"), re.M)
    }
    assert {*named, *imported} <= set(assets())
    assert {name for name in assets() if name.endswith((".js", ".mjs"))} <= {*named, *imported}


def test_the_libraries_are_as_published() -> None:
    folder = STATIC / "vendor"
    note = (folder / "README.md").read_text(encoding="utf-8")
    for name in ("preact.mjs", "htm.module.js"):
        assert f"{sha256((folder / name).read_bytes()).hexdigest()} {name}" in note
    assert "MIT License" in (folder / "LICENSE.preact").read_text(encoding="utf-8")
    assert "Apache License" in (folder / "LICENSE.htm").read_text(encoding="utf-8")


def test_figures_need_a_token_and_the_page_does_not(session: Session, tmp_path: Path) -> None:
    names = {"reader": "read", "pusher": "push"}
    file = tmp_path / "tokens"
    file.write_text(
        "".join(f"{name} {role} {sha256(name.encode()).hexdigest()}\n" for name, role in names.items()),
        encoding="utf-8",
    )
    with opened(session, file) as client:
        assert client.get("/").status_code == 200
        for path in ("me", "accounts", "series"):
            asked = [
                client.get(f"/v1/{path}", headers={"Authorization": f"Bearer {name}"}).status_code
                for name in ("reader", "pusher", "nobody")
            ]
            assert asked == [200, 403, 401]
        me = client.get("/v1/me", headers={"Authorization": "Bearer reader"}).json()
        assert me == {"name": "reader", "roles": ["read"]}


def steps(count: int, **figures: Any) -> list[dict[str, Any]]:
    now = time.time_ns()
    return [{"kind": "step", "epoch_ns": now + k, "step": k, "seconds": 2.0, **figures} for k in range(count)]


def test_accounts_and_series_are_those_of_the_steps(client: TestClient) -> None:
    before = client.get("/v1/accounts").json()
    assert before["measured"] is None and before["expected"]["gpu_usd_per_hour"] > 0
    assert client.get("/v1/series").json()["at"] == []
    told = {"sent": [["d0", "d1", 10**9, 0.5]], "compute_s": {"d0": 1.0, "d1": 0.5}}
    client.post("/v1/observations", json=[*links(), *steps(3, **told)])
    after = client.get("/v1/accounts").json()
    price = next(
        link["usd_per_gb"]
        for link in client.get("/v1/state").json()["links"]
        if (link["src"], link["dst"]) == ("d0", "d1")
    )
    assert after["run"]["steps"] == 3 and after["run"]["egress_bytes"] == 3 * 10**9
    assert after["month"]["egress_usd"] == pytest.approx(3 * price) == after["run"]["links"][0]["usd"]
    assert after["measured"]["egress_bytes_per_s"] == pytest.approx(3 * 10**9 / 6)
    assert after["measured"]["utilisation"] == pytest.approx({"d0": 0.5, "d1": 0.25})
    rows = client.get("/v1/series").json()
    assert rows["step_s"] == [2.0] and rows["utilisation"]["d0"] == [0.5]
    assert [one["virtual"] for one in rows["plans"]] == [True]
