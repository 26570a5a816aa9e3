"""Cost of the live view: processor time of one run, alone and watched by a screen and a server of metrics.

    python -m benchmarks.replay.live [--policy mpc] [--rounds 5]

Runs take turns, so that a machine that gets slower meets both. The screen is drawn for a terminal of 120 x 45
into memory; the server is asked once a second. Printed: seconds of the processor by round, the ratio of the
sums, and whether all runs have one digest.
"""

import argparse
import io
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import rich.console
import rich.live

from commands.show import live_run
from ingest.core import resources
from ingest.pipeline.ingest import ingest
from replay.live.metrics_server import serving
from replay.live.pace import Pace
from replay.live.run_metrics import run_metrics
from replay.live.run_state import RunState
from replay.run import runner
from twin.scenario.prepare import load

WIDTH, HEIGHT = 120, 45


def alone(play: Callable[..., runner.RunResult]) -> str:
    return play().digest


def watched(play: Callable[..., runner.RunResult]) -> str:
    state, pace = RunState(), Pace()
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, width=WIDTH, height=HEIGHT)
    draw = partial(live_run.screen, state, pace, WIDTH, HEIGHT)
    over = threading.Event()
    with serving(0, lambda: run_metrics(state.latest, pace)) as address:
        scraper = threading.Thread(target=_scrape, args=(address, over))
        with rich.live.Live(get_renderable=draw, console=console, refresh_per_second=2, transient=True):
            scraper.start()
            digest = play(watch=state, progress=pace).digest
        over.set()
        scraper.join()
    return digest


def _scrape(address: str, over: threading.Event) -> None:
    while not over.wait(1.0):
        with urlopen(address, timeout=5) as answer:
            answer.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="mpc")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    taken: dict[str, list[float]] = {"alone": [], "watched": []}
    digests = set()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        ingest([resources.traces() / "synthetic-tri"], store)
        play = partial(
            runner.run,
            store,
            policy=chosen.policy,
            scenario=load("tri-7b"),
            dataset="synthetic-tri",
            window="all",
        )
        digests.add(play().digest)  # compiles, and is not counted
        for _ in range(chosen.rounds):
            for name, one in (("alone", alone), ("watched", watched)):
                began = time.process_time()
                digests.add(one(play))
                taken[name].append(time.process_time() - began)
    for name, seconds in taken.items():
        print(f"{name:8} {'  '.join(f'{one:.2f}' for one in seconds)} s")
    print(f"ratio of the sums {sum(taken['watched']) / sum(taken['alone']):.3f}; digests: {len(digests)}")


if __name__ == "__main__":
    main()
