"""Connections that are idle or slow end, and lock nobody out; with sockets and a real server."""

import logging
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from ingest.core.errors import UsageError
from service.api import connections, server
from service.api.app import ApiSettings, make_app
from service.api.connections import Connections, Patience, client_of
from service.api.limits import LimitRate, RequestLimits
from service.api.log_lines import OncePerMinute
from service.api.server import ListenAddress
from service.api.tokens import Tokens
from service.session.session import Session
from tests.support.serving import api_settings, bearer, toy_session

QUICK = Patience(head=0.3, body=0.6, idle=0.5, unread=0.5)
HEAD = b"POST /v1/observations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("connections"), patch)
        yield one
        one.close()


@contextmanager
def serving(
    session: Session, patience: Patience, total: int = 12, settings: ApiSettings | None = None, **address: Any
) -> Iterator[tuple[str, int, Any]]:
    """Host and port of a server in a thread, and its connections."""
    where = ListenAddress(port=0, **address)
    listener = server.bound(where)
    listener.connections.total, listener.connections.per_client = total, total // 2
    listener.connections.patience = patience
    app = make_app(session, settings or api_settings())
    ready = threading.Event()
    ends: list[Callable[[], None]] = session.on_end
    before = len(ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server._Server, "capture_signals", lambda self: contextmanager(lambda: iter([None]))())
        thread = threading.Thread(target=server.run, args=(app, where, listener, lambda _: ready.set()))
        thread.start()
        assert ready.wait(20)
        yield "127.0.0.1", listener.getsockname()[1], listener.connections
        ends[before]()
        thread.join(30)
    del ends[before:]


@pytest.fixture(autouse=True)
def clients() -> Iterator[None]:
    """Closes the sockets of a test, also of one that failed."""
    yield
    while OPENED:
        OPENED.pop().close()


OPENED: list[socket.socket] = []


def connected(place: tuple[str, int], sent: bytes = b"") -> socket.socket:
    one = socket.create_connection(place, 5)
    OPENED.append(one)
    one.sendall(sent)
    one.settimeout(5)
    return one


def ended(one: socket.socket) -> bool:
    """True if the service has closed a connection."""
    one.setblocking(False)
    try:
        return one.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_what_sends_nothing_or_too_slowly_is_ended(session: Session) -> None:
    with serving(session, QUICK) as (host, port, held):
        silent = connected((host, port))
        half = connected((host, port), b"GET /ready HTTP/1.1\r\nHost: loc")
        body = connected((host, port), HEAD + b"Content-Length: 100\r\n\r\n[")
        chunks = connected((host, port), HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n")
        idle = connected((host, port), b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        while time.monotonic() - began < 4 and not all(map(ended, (silent, half, body, chunks, idle))):
            for one, byte in ((half, b"a"), (body, b" "), (chunks, b"1\r\n \r\n")):  # dripping does not help
                with suppress(OSError):
                    one.send(byte)
            time.sleep(0.1)
        assert all(map(ended, (silent, half, body, chunks, idle)))
        until(lambda: len(held) == 0)
        assert held.ended["head"] == 2 and held.ended["body"] == 2


def test_one_that_does_not_read_its_answers_is_ended(session: Session) -> None:
    with serving(session, QUICK) as (host, port, held):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((host, port))
        one.setblocking(False)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400

        def ask() -> bool:
            try:
                one.send(asked)
            except BlockingIOError:
                pass
            except OSError:
                return True
            return held.ended["unread"] > 0

        until(ask, 20)
        until(lambda: len(held) == 0)
        one.close()


def test_idle_ones_never_lock_others_out(session: Session) -> None:
    patient = Patience(60, 60, 60, 60)
    with serving(session, patient, total=12) as (host, port, held):
        crowd = [connected((host, port)) for _ in range(100)]
        for _ in range(5):
            assert httpx.get(f"http://{host}:{port}/ready", timeout=5).status_code == 200
        until(lambda: len(held) <= 6)  # half of all, for one client
        assert sum(map(ended, crowd)) >= 94 and held.ended["crowded out"] >= 94
        stream = [
            connected((host, port), b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(4)
        ]
        answers = [one.recv(64) for one in stream]
        assert [answer.split()[1] for answer in answers] == [b"200"] * 3 + [b"503"]  # a quarter of all
        assert httpx.get(f"http://{host}:{port}/ready", timeout=5).status_code == 200


def test_where_all_are_at_work_a_new_one_is_told(session: Session) -> None:
    with serving(session, Patience(60, 60, 60, 60), total=4) as (host, port, held):
        held.per_client = 4
        for _ in range(4):
            connected((host, port))
        until(lambda: len(held) == 4)
        for entry in held._open.values():
            entry.phase = ""
        late = connected((host, port))
        assert late.recv(64).startswith(b"HTTP/1.1 503")
        assert held.ended["refused"] == 1
        next(iter(held._open.values())).unread_since_s = 0.0  # it is sent what it does not read
        connected((host, port), b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: held.ended["crowded out"] == 1)


def test_the_handshake_of_tls_counts(session: Session, tmp_path: Path) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1",
         "-keyout", "k.pem", "-out", "c.pem"], cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl is not installed")
    pair = {"certificate": tmp_path / "c.pem", "key": tmp_path / "k.pem"}
    with serving(session, QUICK, **pair) as (host, port, held):
        silent = [connected((host, port)) for _ in range(30)]
        answer = httpx.get(f"https://{host}:{port}/ready", verify=False, timeout=5)
        assert answer.status_code == 200
        until(lambda: all(map(ended, silent)))
        assert len(held) <= 6


def test_the_limit_lies_below_that_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, total in ((1024, 864), (256, 96), (64, 16), (100_000, 2000), (resource.RLIM_INFINITY, 2000)):
        monkeypatch.setattr(connections.resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections.room() == (total, total // 2)


def test_a_client_is_an_address_or_a_network() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::2:3") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:10.0.0.1") == client_of("10.0.0.1") == "10.0.0.1"
    assert client_of("::1") == "::1" and client_of("testclient") == "testclient" and client_of("") == ""


def test_proxies_may_have_more_connections_than_a_client() -> None:
    proxies = [server._network("10.0.0.0/30")]
    held = Connections(8, 2, proxies=proxies, clock=lambda: 0.0)
    pairs = [socket.socketpair() for _ in range(6)]
    for number, (one, _) in enumerate(pairs[:3]):
        assert held.admit(one, ("10.0.0.1", number))
    assert held.ended["crowded out"] == 0
    for number, (one, _) in enumerate(pairs[3:]):
        assert held.admit(one, ("10.0.0.9", number))
    assert held.ended["crowded out"] == 1
    for one, other in pairs:
        one.close()
        other.close()
    with pytest.raises(UsageError, match="--proxy"):
        server.bound(ListenAddress(port=0, proxies=("*",)))


@pytest.mark.parametrize(("proxies", "counted"), [((), 1), (("127.0.0.1",), 5)])
def test_only_a_named_proxy_says_who_the_client_is(
    session: Session, monkeypatch: pytest.MonkeyPatch, proxies: tuple[str, ...], counted: int
) -> None:
    seen = set()

    def allowed(self: LimitRate, address: str) -> bool:
        seen.add(address)
        return True

    monkeypatch.setattr(LimitRate, "_allowed", allowed)
    with serving(session, QUICK, proxies=proxies) as (host, port, _):
        for number in range(5):
            head = {"X-Forwarded-For": f"10.0.0.{number}"}
            assert httpx.get(f"http://{host}:{port}/ready", headers=head).status_code == 200
    assert len(seen) == counted


def test_bodies_together_have_a_limit(session: Session) -> None:
    from tests.support.serving import asking

    limits = RequestLimits(body_bytes=1000, held_bytes=500)
    with asking(make_app(session, api_settings(limits=limits))) as client:
        head = {"Content-Type": "application/json"}
        assert client.post("/v1/observations", content=b"[" + b" " * 600, headers=head).status_code == 503
        assert (
            client.post("/v1/observations", content=b"[]", headers=head).status_code == 200
        )  # nothing is left held


def test_lines_of_a_kind_are_one_a_minute() -> None:
    now = [0.0]
    bound = OncePerMinute(lambda: now[0])

    def record(text: str, *args: object) -> logging.LogRecord:
        return logging.LogRecord("asyncio", logging.ERROR, "", 0, text, args, None)

    assert [bound.filter(record("from %s:%d", "a", n)) for n in range(1000)] == [True] + [False] * 999
    assert bound.filter(record("another"))
    assert [bound.filter(record(f"fd={n} failed")) for n in range(3)] == [True, False, False]
    now[0] = 61.0
    again = record("from %s:%d", "b", 1)
    assert bound.filter(again) and again.getMessage() == "from b:1 (999 more like it before)"
    for n in range(1000):
        bound.filter(record("x" * (n % 400 + 1)))
    assert len(bound._kinds) <= 200


FLOOD = """
import socket, sys, time, urllib.request
host, port = "127.0.0.1", int(sys.argv[1])
held = [socket.create_connection((host, port)) for _ in range(1020)]
for _ in range(3):
    assert urllib.request.urlopen(f"http://{host}:{port}/ready", timeout=5).status == 200
    time.sleep(0.2)
time.sleep(float(sys.argv[2]))
gone = 0
for one in held:
    one.setblocking(False)
    try: gone += one.recv(1) == b""
    except ConnectionError: gone += 1
    except BlockingIOError: pass
print(gone)
"""
SERVE = """
import pytest, sys
from pathlib import Path
from service.api import server
from service.api.app import make_app
from tests.support.serving import api_settings, bearer, toy_session
session = toy_session(Path(sys.argv[1]), pytest.MonkeyPatch())
address = server.ListenAddress(port=0)
app = make_app(session, api_settings())
server.run(app, address, server.bound(address), lambda url: print(url, flush=True))
session.close()
"""


def test_a_flood_under_a_small_limit_of_files_leaves_the_service_answering(
    repository: Path, tmp_path: Path
) -> None:
    def limits(number: int) -> Callable[[], None]:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))

    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(tmp_path / "store")], cwd=repository, text=True,
            stdout=subprocess.PIPE, stderr=err, preexec_fn=limits(256),
        )  # fmt: skip
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip().rpartition(":")[2]
            done = subprocess.run(
                [sys.executable, "-c", FLOOD, port, "11.5"], capture_output=True, text=True, check=False,
                preexec_fn=limits(4096),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert int(done.stdout) == 1020
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.communicate()
    lines = (tmp_path / "err").read_text().splitlines()
    assert len([line for line in lines if "Too many open files" in line]) <= 1 and len(lines) < 20, lines


def test_the_stream_of_a_token_that_is_revoked_ends(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    line = f"eye read {sha256(b'eye').hexdigest()}"
    file.write_text(f"{line}\nother read {'0' * 64}\n")
    with (
        serving(session, QUICK, settings=ApiSettings(Tokens(file))) as (host, port, _),
        httpx.Client(base_url=f"http://{host}:{port}", headers=bearer("eye")) as client,
        client.stream("GET", "/v1/stream") as answer,
    ):
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        file.write_text(f"other read {'0' * 64}\n")
        began = time.monotonic()
        list(lines)  # until it ends
        assert time.monotonic() - began < 4
        assert client.get("/v1/state").status_code == 401
