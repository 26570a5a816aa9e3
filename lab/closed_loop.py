"""A lab's job that a decision service follows, against the same job under its first plan alone.

    python -m lab.closed_loop --store .twin/lab        (`make lab-loop`)

The service (`twin serve`, active) is a process of its own behind HTTP. The job of the lab reports its plan,
its steps and samples of the links through `service.hook`; orders come back through the hook and become the
next plan of the workers, relays, depth of the warm-up and layers included, at a step boundary ahead. It
begins with an even cut. From `--degrade-at` seconds on a link carries a small share of what was measured.
Printed as JSON: steps of each plan and pauses of moves, measured and predicted, the loss beside that of the
training in one process, the measured seconds of both trainings, and by trace the share that the closed loop
saves with its t interval over repetitions. A command that was stopped goes on where it was; `--afresh`
measures anew.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from ingest.core import durable
from ingest.core.errors import TwinError, UsageError
from lab.emulated_wan import missing
from lab.loop_runs import Degradation
from lab.loop_table import LoopPair, LoopSettings, pairs, to_json


def arguments(about: str | None = __doc__) -> argparse.ArgumentParser:
    """Returns the options."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=form)
    parser.add_argument("--store", type=Path, default=Path(".twin/lab"))
    parser.add_argument("--scenario", default="lab")
    parser.add_argument("--policy", default="mpc")
    parser.add_argument("--steps", type=int, default=24, help="steps of each training [24]")
    parser.add_argument(
        "--time-scale", type=float, default=8.0, help="seconds of the scenario in one of the lab [8]"
    )
    parser.add_argument("--traces", default="synthetic-tri", help="data sets in the store, A,B,C")
    parser.add_argument("--repetitions", type=int, default=1, help="pairs of trainings of a trace [1]")
    parser.add_argument(
        "--degrade", default="1-2", help="sites whose link degrades, from 1, A-B; none: no link [1-2]"
    )
    parser.add_argument("--degrade-to", type=float, default=0.01, help="share of its bandwidth [0.01]")
    parser.add_argument("--degrade-at", type=float, default=120.0, help="seconds of the scenario [120]")
    parser.add_argument("--results", type=Path, help="folder of kept trainings [STORE-loops]")
    parser.add_argument("--afresh", action="store_true", help="measure anew what is kept")
    return parser


def settings_of(given: argparse.Namespace) -> LoopSettings:
    """Returns what the options ask for.

    Raises:
        UsageError: a number is out of range.
    """
    for name, least in (("steps", 8), ("repetitions", 1), ("degrade_at", 0)):
        if getattr(given, name) < least:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(given, name)}: {least} or more")
    if not 0 < given.degrade_to <= 1:
        raise UsageError(
            f"--degrade-to {given.degrade_to:g}: a share of the bandwidth, above 0 and at most 1"
        )
    if not given.time_scale > 0:
        raise UsageError(f"--time-scale {given.time_scale:g}: above 0")
    return LoopSettings(given.scenario, given.policy, given.steps, given.time_scale, _degradation(given))


def _degradation(given: argparse.Namespace) -> Degradation | None:
    if given.degrade == "none":
        return None
    sites = [int(word) - 1 for word in given.degrade.split("-") if word.isdigit()]
    if len(sites) != 2 or min(sites) < 0 or sites[0] == sites[1]:
        raise UsageError(f"--degrade {given.degrade}: two sites, as 1-2, or none")
    return Degradation((sites[0], sites[1]), given.degrade_to, given.degrade_at)


def measured(given: argparse.Namespace) -> tuple[LoopSettings, list[LoopPair]]:
    """Returns the settings and every pair of trainings; a line on standard error for each training.

    Raises:
        TwinError: this machine has no lab, or an option does not fit.
    """
    settings = settings_of(given)
    if (lack := missing()) is not None:
        raise UsageError(f"no lab on this machine: {lack}")
    results = given.results or given.store.with_name(f"{given.store.name}-loops")
    durable.make_directory(results)
    if given.afresh:
        durable.remove_all(results, [path.name for path in results.glob("*.json")])
    # Ended by a signal, it stops what it has started as it does when a step fails.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    names = [name for name in given.traces.split(",") if name]
    found = list(pairs(given.store, results, settings, names, given.repetitions, _tell))
    if not any(pair.moves for pair in found):
        _tell("no layer moved: the service found no move that pays within these steps")
    return settings, found


def _tell(line: str) -> None:
    print(f"lab: {line}", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Runs the loop and prints its figures."""
    try:
        settings, found = measured(arguments().parse_args(words))
    except TwinError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    print(json.dumps(to_json(settings, found), indent=2), file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
