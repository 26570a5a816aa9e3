"""Pages of `twin report` in a browser: python -m benchmarks.replay.report_page PAGE.html ... --axe axe.min.js

Needs chromium (Debian: apt-get install chromium). Prints for each page and width: bytes, charts drawn, errors
of its scripts, requests that it wanted to make (a content policy forbids all of them), pixels that it is
wider than the window, and with `--axe` (from `npm pack axe-core`) what the accessibility rules find, by
severity.
`--shots DIR` keeps a picture of each. Ends with 1 where there is an error, a request, or a serious finding.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

WIDTHS = (390, 1440)
HEIGHT = 900
POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none';
script-src 'unsafe-inline'; style-src 'unsafe-inline'"><script>
const problems = { errors: [], requests: [] };
addEventListener("error", (event) => problems.errors.push(event.message));
addEventListener("unhandledrejection", (event) => problems.errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => problems.requests.push(event.blockedURI));
console.error = (...words) => problems.errors.push(words.join(" "));
</script>"""
LOOK = """<script>addEventListener("load", async () => {
  dispatchEvent(new Event("beforeprint")); dispatchEvent(new Event("afterprint"));
  const found = window.axe ? (await axe.run()).violations : null;
  const out = document.createElement("pre");
  out.id = "findings";
  out.textContent = JSON.stringify({ ...problems, charts: document.querySelectorAll("canvas").length,
    over: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    axe: found && found.map((one) => [one.impact, one.id, one.nodes.length, String(one.nodes[0].target)]) });
  document.body.append(out);
});</script>"""
SERIOUS = ("serious", "critical")


def look(browser: str, page: Path, width: int, axe: str) -> dict[str, Any]:
    """Opens a copy of a page in a window of `width` and returns what its look found."""
    text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{POLICY}", 1)
    end = text.rindex("</body>")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(f"{text[:end]}<script>{axe}</script>{LOOK}{text[end:]}", encoding="utf-8")
        dom = run(browser, width, "--virtual-time-budget=20000", "--dump-dom", copy.as_uri())
    found = re.search(r'<pre id="findings">(.*?)</pre>', dom, re.DOTALL)
    if found is None:
        sys.exit(f"{page}: the browser did not come to the end of the page")
    return dict(json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")))


def run(browser: str, width: int, *words: str) -> str:
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},{HEIGHT}",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    parser.add_argument("--shots", type=Path, help="folder for pictures")
    options = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("needs chromium: apt-get install chromium")
    axe, bad = "" if options.axe is None else options.axe.read_text(encoding="utf-8"), 0
    for page in options.pages:
        for width in WIDTHS:
            seen = look(browser, page.resolve(), width, axe)
            severities = None if seen["axe"] is None else dict(Counter(one[0] for one in seen["axe"]))
            print(
                f"{page.name} at {width} px: {page.stat().st_size:,} bytes, {seen['charts']} charts,"
                f" errors {seen['errors']}, requests {seen['requests']}, {seen['over']} px too wide,"
                f" axe {'not asked' if severities is None else severities or 'nothing'}"
            )
            for severity, rule, count, where in seen["axe"] or ():
                print(f"  {severity}: {rule}, {count} times, first at {where}")
                bad += severity in SERIOUS
            bad += len(seen["errors"]) + len(seen["requests"])
            if options.shots is not None:
                options.shots.mkdir(parents=True, exist_ok=True)
                shot = options.shots.resolve() / f"{page.stem}-{width}.png"
                run(browser, width, f"--screenshot={shot}", page.resolve().as_uri())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
