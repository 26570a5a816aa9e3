"""The console in a real Chromium: what the page says and draws of a service that is told things.

Skipped where no Chromium is installed (Debian: apt-get install chromium); `test_console_shapes.py` tries
the same computations in Node.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import uvicorn

from service.api.app import make_app
from service.console import routes
from service.session.session import Session
from tests.support.chromium import BROWSER, Page, page
from tests.support.serving import TOKEN, api_settings, links, observe, toy_session

pytestmark = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
S = 10**9
CHARTS = """window.charts = []; let made; Object.defineProperty(window, "uPlot", {
  get: () => made, set(found) { made = new Proxy(found, { construct(target, given) {
    const chart = new target(...given); window.charts.push(chart); return chart; } }); } });"""
"""Remembers the charts of a page."""
LINK_CHART = "charts.filter((one) => document.querySelector('#links').contains(one.root)).at(-1)"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("console-page"), patch, synthetic=("links", "job"))
        yield one
        one.close()


@pytest.fixture(scope="module")
def address(session: Session) -> Iterator[str]:
    app = make_app(session, api_settings())
    routes.mount(app)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/?token={TOKEN}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def console(address: str, tmp_path: Path) -> Iterator[Page]:
    with page(tmp_path) as one:
        one.open(address, before=CHARTS)
        one.until("document.querySelector('#links canvas')")
        yield one
        assert one.errors == []


def push(session: Session, age_s: float) -> None:
    """Sends a sample of every link of this age."""
    now = time.time_ns()
    observe(session, f"k{now}", links(at_ns=now - round(age_s * S)))


def forward(console: Page) -> None:
    """Checks the times of the chart: none runs back, and each sample has its own."""
    times, measured = console.value(f"{LINK_CHART}.data.slice(0, 2).map((column) => [...column])")
    assert times == sorted(times)
    of_samples = [at for at, value in zip(times, measured, strict=True) if value is not None]
    assert of_samples == sorted(set(of_samples))


def test_the_measured_line_runs_forward(session: Session, console: Page) -> None:
    time.sleep(1.5)
    for age_s in (1.2, 0.9, 0.6, 0.3):  # each comes later than it was made
        push(session, age_s)
    shown = f"{LINK_CHART}?.data[1].filter(Number.isFinite).length"
    console.until(f"{shown} >= 4", 20)
    forward(console)
    console.send("Page.reload")  # the history, and what the stream repeats of it
    console.until(f"window.charts?.length && {shown} >= 4", 20)
    push(session, 0.0)
    console.until(f"{shown} >= 5", 20)
    forward(console)


def test_all_links_have_one_scale(session: Session, console: Page) -> None:
    push(session, 0.0)
    slow = links(1e8)[:1]
    observe(session, f"s{time.time_ns()}", slow)
    tops = []
    for number in range(3):
        console.value(f"document.querySelectorAll('#links tbody button')[{number}].click()")
        console.until(f"document.querySelectorAll('#links tbody tr')[{number}].className === 'this'")
        time.sleep(0.5)
        tops.append(console.value(f"{LINK_CHART}.scales.y.max"))
    assert len(set(tops)) == 1, tops


def test_a_job_that_was_submitted_is_in_the_queue(session: Session, console: Page) -> None:
    console.until("document.querySelector('#queue').innerText.includes('No job waits')")
    item = {"kind": "submit", "id": "trial-7", "gpus": 1, "estimate_s": 60}
    session.change_jobs([item]).result(20)  # by another client
    console.until("document.querySelector('#queue table')?.innerText.includes('trial-7')", 5)
    console.value(
        """(() => { for (const [name, value] of [["id", "trial-8"], ["gpus", "1"], ["minutes", "5"]])
        document.querySelector(`#queue input[name=${name}]`).value = value;
        document.querySelector("#queue form").requestSubmit(); })()"""
    )
    console.until("document.querySelector('#queue table').innerText.includes('trial-8')", 5)


def test_the_menu_marks_what_is_read(console: Page) -> None:
    mark = "document.querySelector('nav a[aria-current=true]')?.getAttribute('href')"
    ids = console.value("[...document.querySelectorAll('nav a')].map((one) => one.getAttribute('href'))")
    for name in (*ids, *reversed(ids)):
        console.value(f"document.querySelector('nav a[href=\"{name}\"]').click()")
        console.until(f"{mark} === '{name}'", 5)
    console.value("scrollTo(0, document.documentElement.scrollHeight)")
    console.until(f"{mark} === '{ids[0]}' || {mark} === '{ids[-1]}'", 5)
    console.value("scrollTo(0, 0)")
    console.until(f"{mark} === '{ids[0]}'", 5)


@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_no_key_figure_is_cut_off(address: str, tmp_path: Path, width: int) -> None:
    with page(tmp_path) as one:
        one.open(address, width=width)
        one.until("document.querySelector('#costs .card b')")
        cut = """[...document.querySelectorAll('.card')].filter((card) =>
            [card, ...card.children].some((part) => part.scrollWidth > part.clientWidth + 1)).length"""
        assert one.value(cut) == 0
        long = "[...document.querySelectorAll('.card b')].forEach((b) => b.textContent = '$123,456,789.12/h')"
        more = """[...document.querySelectorAll('.cards')].forEach((cards) =>
            cards.append(...[...cards.children].map((card) => card.cloneNode(true))))"""
        one.value(f"{more}; {long}")
        assert one.value(cut) == 0
        assert one.value("document.documentElement.scrollWidth - innerWidth") <= 0


def test_the_page_says_what_is_synthetic(console: Page) -> None:
    said = console.value("document.querySelector('header').innerText")
    assert "the links are synthetic" in said and "the job is synthetic (simulated)" in said
    assert "synthetic links" in console.value("document.querySelector('#links h2').innerText")
    assert "simulated job" in console.value("document.querySelector('#jobs h2').innerText")


def test_a_clock_in_doubt_is_said(session: Session, console: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "document.querySelector('header [role=alert]')"
    with monkeypatch.context() as wrong:
        wrong.setattr(session._clock, "_wall", lambda: time.time_ns() + 30 * 86_400 * S)
        console.until(f"{said}?.innerText.includes('30.0 days ahead')", 10)
    console.until(f"!{said}", 10)
    console.until("document.querySelector('#jobs').innerText.includes('the clock is believed again')", 10)
