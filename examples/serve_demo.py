"""A decision service, links played into it, a simulated job that follows it, Prometheus if it is there.

python examples/serve_demo.py --store .twin/serve        (`make serve-demo` fills that store before)

Prints the address of the console. The service begins in shadow mode: what it decides changes nothing until it
is approved there. Links are SYNTHETIC, the job is SIMULATED; see `examples/play_links.py`.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

FOLDER = Path(__file__).parent
PORT = 8712
"""Port of the service; the configuration of Prometheus names it too."""
SCRAPING = FOLDER.parent / "configs" / "operations" / "prometheus.yaml"
PROMETHEUS_PORT = 9712
END_S = 10
"""Seconds that a process gets to end."""


@contextmanager
def running(*words: str | Path, **more: int) -> Iterator["subprocess.Popen[str]"]:
    """Yields a process that is ended with the body."""
    process = subprocess.Popen([str(word) for word in words], text=True, **more)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def service_words(store: Path, scenario: str, dataset: str, policy: str, port: int) -> list[str | Path]:
    """Returns the command of the service; it prints one line of JSON when it is ready."""
    twin = Path(sys.executable).with_name("twin")
    words = ["serve", "--scenario", scenario, "--dataset", dataset, "--policy", policy, "--port", str(port)]
    words += ["--synthetic", "links", "--synthetic", "job"]
    return [twin, "--store", store, *words, "--json"]


def prometheus_words(store: Path) -> list[str | Path] | None:
    """Returns the command of Prometheus; None where it is not installed."""
    program = shutil.which("prometheus")
    if program is None:
        return None
    return [
        program, f"--config.file={SCRAPING}", f"--storage.tsdb.path={store / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}", "--log.level=error",
    ]  # fmt: skip


def main() -> int:
    """Runs until Ctrl-C, or until one of the processes ends."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--store", type=Path, default=Path(".twin/serve"))
    parser.add_argument("--scenario", default="tri-7b")
    parser.add_argument("--dataset", default="synthetic-tri")
    parser.add_argument("--policy", default="mpc")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--speed", default="60", help="times as fast as recorded [60]")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long [until Ctrl-C]")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the others too
    with ExitStack() as stack:
        words = service_words(given.store, given.scenario, given.dataset, given.policy, given.port)
        service = stack.enter_context(running(*words, stdout=subprocess.PIPE))
        assert service.stdout is not None
        ready = service.stdout.readline()
        if "url" not in (body := json.loads(ready or "{}")):
            return service.wait()  # it has said why
        url = body["url"]
        print(f"console     {body['console']}", flush=True)
        if scraping := prometheus_words(given.store):
            stack.enter_context(running(*scraping))
            print(
                f"Prometheus  http://127.0.0.1:{PROMETHEUS_PORT}/graph?g0.expr=twin_decisions_total",
                flush=True,
            )
        else:
            print("Prometheus  not installed; the metrics are at /metrics", flush=True)
        play = [sys.executable, FOLDER / "play_links.py", url, "--store", given.store, "--speed", given.speed]
        play += ["--scenario", given.scenario, "--dataset", given.dataset]
        player = stack.enter_context(running(*play))
        print(f"played      SYNTHETIC links at {given.speed} times their speed, a SIMULATED job; Ctrl-C ends")
        return wait(service, player, given.seconds)


def wait(service: "subprocess.Popen[str]", player: "subprocess.Popen[str]", seconds: float) -> int:
    """Waits until the time is over or a process has ended, and returns its status."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for process in (service, player):
                if process.poll() is not None:
                    return process.returncode
            time.sleep(0.2)
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
