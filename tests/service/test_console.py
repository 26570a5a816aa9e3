"""The console without a browser: its files, what they may load, who gets figures, and what these are."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from service.api.app import make_app
from service.api.tokens import Tokens
from service.console import routes
from service.console.assets import STATIC, assets
from service.session.session import Session
from tests.support.serving import TOKEN, api_settings, asking, links, toy_session
from twin.core.plan import Plan, Share, Sync, to_json
from twin.core.plan_text import plan_text

OWN = sorted(path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("console"), patch)
        yield one
        one.close()


def opened(session: Session, tokens: Path | None = None) -> TestClient:
    app = make_app(session, api_settings(tokens=Tokens(tokens, TOKEN)))
    routes.mount(app)
    return asking(app)


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
    assert {name for name in assets() if name.endswith((".js", ".mjs"))} <= set(named)  # none is found late


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


def test_accounts_and_series_are_those_of_the_steps(client: TestClient) -> None:
    before = client.get("/v1/accounts").json()
    assert before["measured"] is None and before["month"] is None and before["run"]["tokens"] == 0
    assert client.get("/v1/series").json()["at"] == []
    plan = client.get("/v1/decision").json()["plan"]
    told = {"kind": "plan", "state": "running", "plan": plan, "epoch_ns": time.time_ns()}
    step = {"kind": "step", "step": 0, "seconds": 0.02, "compute_s": {"d0": 0.01}}
    client.post("/v1/observations", json=[*links(), told])
    time.sleep(0.03)
    client.post("/v1/observations", json=[{**step, "epoch_ns": time.time_ns()}])
    after, rows = client.get("/v1/accounts").json(), client.get("/v1/series").json()
    sums, rates = after["run"], after["measured"]
    assert after["month"] == {"month": time.strftime("%Y-%m", time.gmtime()), **sums}
    assert sums["iterations"] == 1 and sums["tokens"] == client.get("/v1/state").json()["job"]["tokens"]
    assert sums["egress_usd"] == pytest.approx(sum(link["usd"] for link in sums["links"]))
    assert sums["egress_usd"] == pytest.approx(0.02 * sums["egress_bytes"] / 1e9)
    wall_s = sums["tokens"] / rates["tokens_per_s"]
    assert 0.02 <= wall_s < 5 and rates["gpu_usd_per_hour"] == pytest.approx(sums["gpu_usd"] / wall_s * 3600)
    assert rates["gpu_usd_per_hour"] == pytest.approx(after["expected"]["gpu_usd_per_hour"])
    for found in (rates, after["expected"]):
        each = found["usd_per_1e9_tokens"]
        hourly = found["gpu_usd_per_hour"] + found["egress_usd_per_hour"]
        assert each["total"] == pytest.approx(each["rent"] + each["egress"])
        assert each["total"] == pytest.approx(hourly / 3600 / found["tokens_per_s"] * 1e9)
    assert after["expected"]["mfu"] > 0 and after["mfu"] > 0  # beyond 1, as these steps are
    held = {share["domain"] for share in plan["shares"]}
    assert rates["utilisation"].keys() == {f"d{k}" for k in held}
    assert len(rows["at"]) == 1 and rows["step_s"] == [pytest.approx(rates["iteration_s"], rel=1e-4)]
    assert rows["utilisation"]["d0"] == [pytest.approx(rates["utilisation"].get("d0", 0.0), rel=1e-4)]
    assert [one["virtual"] for one in rows["plans"]] == [True, False]


def test_the_guide_names_its_routes_and_sections(repository: Path) -> None:
    guide = (repository / "docs" / "guides" / "console.md").read_text(encoding="utf-8")
    paths = {route.path for route in routes.router.routes if isinstance(route, APIRoute)}
    assert set(re.findall(r"\| `GET (/v1/\w+)` \|", guide)) == paths
    listed = (STATIC / "app.js").read_text(encoding="utf-8").split("const SECTIONS")[1].split("];")[0]
    sections = re.findall(r'\["[\w-]+", "([^"]+)", \w+\]', listed + "]")
    table = guide.split("## What it shows")[1].split("**Measured")[0]
    assert re.findall(r"^\| ([A-Z][^|]+?) \|", table, re.M) == sections


NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_page_writes_plans_as_every_other_table() -> None:
    """`planLine` of the page and `plan_text` give the same words."""
    two = (Share(0, 20, 2, 2, tuple(range(8))), Share(1, 14, 2, 1, tuple(range(4))))
    first = Plan(two, 2, 1, 8)
    whole = tuple(Share(k, 34, 2, 1, (0, 1, 2, 3)) for k in (2, 0))
    plans = [
        first,
        replace(first, extra_warmup=2, p2p="overlapped", routes=((0, 2, 1),), sequence_parallel=True),
        replace(first, schedule="zb-v", chunks=2),
        replace(first, context_parallel=2, ep=2),
        replace(first, shares=whole, micro_batches=1, sync=Sync(50)),
    ]
    names = ("paris", "berlin")
    script = (
        (STATIC / "format.js").read_text()
        + f"for (const plan of {json.dumps([to_json(plan) for plan in plans])})"
        + f" console.log(planLine(plan, {json.dumps(names)}));"
    )
    assert NODE is not None
    words = [NODE, "--input-type=module", "-e", script]
    found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.splitlines() == [plan_text(plan, names) for plan in plans]
