"""The console in a browser: python -m benchmarks.service.console ADDRESS --axe axe.min.js

Needs chromium (Debian: apt-get install chromium) and Playwright (pip install playwright), and the address of
a `twin serve` with its token, as `make serve-demo` prints it. Goes through every view and form at 390 and
1440 px, dark and light, once with the keyboard alone and once with a pointer. Prints for each window:
milliseconds from the request to the drawn figures, time between frames while 10 steps/s are reported, errors
of the page, requests to other addresses, pixels that it is wider than the window, what failed, and with
`--axe` (from `npm pack axe-core`) what the accessibility rules find. `--shots DIR` keeps pictures. Ends
with 1 where there is an error, a foreign request, a failed step or a serious finding.
"""

import argparse
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

WINDOWS = [(width, colours) for width in (390, 1440) for colours in ("light", "dark")]
HEIGHT = 900
PATIENCE_MS = 15_000
DRAWN_AGAIN_MS = 2_500
"""Milliseconds in which the page is drawn again with new figures; what is typed must survive that."""
SERIOUS = ("serious", "critical")
SECTIONS = (
    "costs",
    "domains",
    "links",
    "plan",
    "decisions",
    "control",
    "what-if",
    "admission",
    "queue",
    "jobs",
)
Page = Any
"""A page of Playwright, which is installed for this alone."""


@dataclass
class Seen:
    """What one window showed."""

    drawn_ms: float = 0.0
    frame_ms: tuple[float, float] = (0.0, 0.0)
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    findings: list[tuple[str, str, int, str]] = field(default_factory=list)
    over_px: int = 0

    @property
    def bad(self) -> int:
        """Number of things that must not be."""
        serious = sum(severity in SERIOUS for severity, *_ in self.findings)
        return len(self.errors) + len(self.foreign) + len(self.failed) + serious + (self.over_px > 0)


def watch(page: Page, seen: Seen, home: str) -> None:
    """Collects errors and foreign requests of a page."""
    page.on("console", lambda m: seen.errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on(
        "request",
        lambda asked: seen.foreign.append(asked.url) if urlsplit(asked.url).netloc != home else None,
    )


@contextmanager
def step(seen: Seen, name: str) -> Iterator[None]:
    """Notes a step that fails, and goes on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Playwright's own, which is imported late
        seen.failed.append(f"{name}: {str(error).splitlines()[0]}")


def open_console(page: Page, address: str, token: str, seen: Seen) -> None:
    """Opens the page and waits until every section is drawn."""
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(f"sessionStorage.setItem('twin.token', {token!r})")
    page.goto(address)
    until(page, f"document.querySelectorAll('main section').length === {len(SECTIONS)}")
    page.wait_for_selector("#links canvas")
    seen.drawn_ms = page.evaluate("performance.getEntriesByName('figures drawn')[0].startTime")


def until(page: Page, condition: str) -> None:
    """Waits until a condition of the page holds; its policy forbids Playwright's own way, which is `eval`."""
    for _ in range(PATIENCE_MS // 50):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise TimeoutError(f"never true: {condition}")


def frames_ms(page: Page) -> tuple[float, float]:
    """Returns median and 99th percentile of the time between frames while 10 steps/s are reported for 5 s.

    The page itself reports them, so that each goes the whole way: durable, streamed, drawn.
    """
    found = page.evaluate(
        """async () => {
          const head = { Authorization: `Bearer ${sessionStorage.getItem("twin.token")}` }, gaps = [];
          let last = performance.now(), run = true, step = 10 ** 9;
          const made = () => [{ kind: "step", epoch_ns: Date.now() * 1e6, step: step++, seconds: 0.1 }];
          const tell = () => fetch("v1/observations",
            { method: "POST", headers: head, body: JSON.stringify(made()) });
          const frame = (now) => {
            gaps.push(now - last);
            last = now;
            if (run) requestAnimationFrame(frame);
          };
          requestAnimationFrame(frame);
          const timer = setInterval(tell, 100);
          await new Promise((wake) => setTimeout(wake, 5000));
          clearInterval(timer);
          run = false;
          gaps.sort((a, b) => a - b);
          return [0.5, 0.99].map((share) => gaps[Math.floor(share * gaps.length)]);
        }"""
    )
    return float(found[0]), float(found[1])


def press(page: Page, *keys: str) -> None:
    """Presses keys one after the other."""
    for key in keys:
        page.keyboard.press(key)


def answered(page: Page, section: str) -> None:
    """Waits for an answer of a form that is no error."""
    page.wait_for_selector(f"#{section} [role=status] .sentence")


def with_pointer(page: Page, seen: Seen) -> None:
    """Uses every form and view by clicks."""
    with step(seen, "choose a link"):
        page.click("#links tbody tr:nth-child(3) button")
        page.wait_for_selector("#links tbody tr:nth-child(3) [aria-pressed=true]")
    with step(seen, "open a decision"):
        page.click("#decision-table tbody button >> nth=0")
        page.wait_for_selector("#decision-table .opened dl")
    with step(seen, "search decisions"):
        page.fill("#decision-search", "no such words")
        page.wait_for_selector("#decisions [role=status]:has-text('0 shown')")
        page.fill("#decision-search", "")
    with step(seen, "dry run with a link supposed"):
        page.click("#what-if button:has-text('suppose a link')")
        page.fill("#what-if input[step=any]", "0.001")
        page.click("#what-if button[type=submit]")
        answered(page, "what-if")
    with step(seen, "admission"):
        page.fill("#admission input[name=model]", "gpt2-1.5b")
        page.fill("#admission input[name=batch]", "8")
        page.fill("#admission input[name=tokens]", "1000000")
        page.click("#admission button[type=submit]")
        answered(page, "admission")
    with step(seen, "admission of an unknown model"):
        page.fill("#admission input[name=model]", "<b>no</b>")
        page.wait_for_timeout(DRAWN_AGAIN_MS)
        page.click("#admission button[type=submit]")
        page.wait_for_selector("#admission .error")
        assert page.locator("#admission .error b").count() == 0, "text became markup"
    with step(seen, "submit a job and cancel it"):
        job = f"trial-{time.time_ns()}"
        fill_job(page, job)
        page.click("#queue button[type=submit]")
        answered(page, "queue")
        page.click(f"#queue button[aria-label='cancel job {job}']")
        page.wait_for_selector(f"#queue tr:has-text('{job}'):has-text('cancelled')")
    with step(seen, "submit the same id with other figures"):
        fill_job(page, job, minutes="7")
        page.click("#queue button[type=submit]")
        page.wait_for_selector("#queue .error:has-text('other figures')")
    for mode, button in (("hold", "Hold"), ("active", "Approve"), ("shadow", "Back to shadow")):
        with step(seen, f"mode {mode}"):
            page.click(f"#control button:has-text('{button}')")
            page.fill("dialog input[name=reason]", "trial of the console")
            page.click("dialog button.main")
            page.wait_for_selector(f"header .mode-{mode}")


def fill_job(page: Page, job: str, minutes: str = "5") -> None:
    """Fills the form of the queue."""
    for name, value in (("id", job), ("gpus", "1"), ("minutes", minutes), ("user", "trial")):
        page.fill(f"#queue input[name={name}]", value)


def with_keys(page: Page, seen: Seen) -> None:
    """Uses the page without a pointer: sections, chart, search, a form, a dialog."""
    with step(seen, "skip link"):
        press(page, "Tab", "Enter")
        until(page, "document.activeElement.id === 'content'")
    for number, section in enumerate(SECTIONS, 1):
        with step(seen, f"key {number}"):
            press(page, str(number % 10))
            until(page, f"document.activeElement.id === '{section}'")
    with step(seen, "read a chart"):
        page.focus("#links .host")
        press(page, "End", "ArrowLeft")
        until(page, "document.querySelector('#links .read').textContent.includes('forecast')")
        press(page, "Escape")
    with step(seen, "search"):
        press(page, "5", "/")
        until(page, "document.activeElement.id === 'decision-search'")
    with step(seen, "dry run"):
        press(page, "Escape")
        page.focus("#what-if button[type=submit]")
        press(page, "Enter")
        answered(page, "what-if")
    with step(seen, "submit a job"):
        page.focus("#queue input[name=id]")
        for value in (f"keys-{time.time_ns()}", "1", "30", "keys"):
            page.keyboard.type(value)
            press(page, "Tab")
        press(page, "Enter")
        answered(page, "queue")
    with step(seen, "a dialog opens, closes, and gives the focus back"):
        page.focus("#control button:has-text('Hold')")
        press(page, "Enter")
        until(page, "document.activeElement.name === 'reason'")
        press(page, "Escape")
        until(page, "!document.querySelector('dialog')")
        until(page, "document.activeElement.textContent === 'Hold'")
    with step(seen, "list of keys, token"):
        press(page, "7", "?")
        page.wait_for_selector("dialog kbd")
        press(page, "Escape")
        until(page, "!document.querySelector('dialog')")
        press(page, "t")
        page.wait_for_selector("dialog input[name=token]")
        press(page, "Escape")


def sign_in(browser: Any, options: argparse.Namespace) -> list[str]:
    """Types the token into the page, and returns what failed: it is asked for, kept in the tab, and works."""
    seen = Seen()
    page = browser.new_context().new_page()
    with step(seen, "sign in"):
        page.goto(options.address)
        page.fill("dialog input[name=token]", "wrong")
        press(page, "Enter")
        page.wait_for_selector("dialog .label")
        page.fill("dialog input[name=token]", options.token)
        press(page, "Enter")
        page.wait_for_selector("#links canvas")
        assert page.evaluate("sessionStorage.getItem('twin.token')") == options.token
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        assert options.token not in page.url and options.token not in page.content()
    page.context.close()
    return seen.failed


def look(browser: Any, options: argparse.Namespace, width: int, colours: str) -> Seen:
    """Goes through the page in one window."""
    seen = Seen()
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT}, color_scheme=colours, bypass_csp=False
    )
    page = context.new_page()
    watch(page, seen, urlsplit(options.address).netloc)
    uses: list[Callable[[Page, Seen], None]] = [with_keys, with_pointer]
    with step(seen, "open"):
        open_console(page, options.address, options.token, seen)
        for use in uses:
            use(page, seen)
        with step(seen, "every figure has a value"):
            text = page.inner_text("main")
            assert not re.search(r"undefined|NaN|\[object", text), "undefined, NaN or an object as text"
        seen.frame_ms = frames_ms(page)
        seen.over_px = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        keep(page, options.shots, f"{width}-{colours}")
        expected = [text for text in seen.errors if " 409 " in text]  # the unknown model
        seen.errors = [text for text in seen.errors if text not in expected[:1]]
    if options.axe is not None:
        with step(seen, "axe"):
            page.evaluate(options.axe.read_text(encoding="utf-8") + "; undefined")
            found = page.evaluate("axe.run().then((all) => all.violations)")
            seen.findings = [
                (one["impact"], one["id"], len(one["nodes"]), str(one["nodes"][0]["target"])) for one in found
            ]
    context.close()
    return seen


def keep(page: Page, folder: Path | None, name: str) -> None:
    """Keeps a picture of the whole page."""
    if folder is not None:
        page.mouse.move(0, 0)
        page.screenshot(path=folder / f"console-{name}.png", full_page=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--token", default="", help="token with the role admin")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    parser.add_argument("--shots", type=Path, help="folder for pictures")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("needs Playwright: pip install playwright")
    if chromium is None:
        sys.exit("needs chromium: apt-get install chromium")
    if options.shots is not None:
        options.shots.mkdir(parents=True, exist_ok=True)
    bad = 0
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if options.token:
            failed = sign_in(browser, options)
            print(f"token typed in: {failed or 'taken'}")
            bad += len(failed)
        for width, colours in WINDOWS:
            seen = look(browser, options, width, colours)
            print(
                f"{width} px {colours}: drawn after {seen.drawn_ms:.0f} ms, frames every"
                f" {seen.frame_ms[0]:.0f} ms (p99 {seen.frame_ms[1]:.0f}) at 10 events/s,"
                f" errors {seen.errors}, foreign requests {seen.foreign}, {seen.over_px} px too wide,"
                f" failed {seen.failed}, axe"
                f" {'not asked' if options.axe is None else seen.findings or 'nothing'}"
            )
            bad += seen.bad
        browser.close()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
