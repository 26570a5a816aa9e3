"""The scenario of a logged run prepared again, without samples ingested since, and how it differs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from replay.store.run_header import Header, code_version
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario


def prepare(store: Path, header: Header) -> PreparedScenario:
    """Prepares the scenario of a run up to the end of the run; a what-if may end before its window.

    Links raise alarms as they did in the run, whose log may be older than today's rule.

    Raises:
        NotFoundError: its data set is no longer in the store.
    """
    setup = scenarios.prepare(
        header.scenario(), store, window=header.window, seed=header.seed, seen=header.seen
    )
    setup = replace(setup, alarm_rule=header.alarm_rule)
    return shortened(setup, int(header.world["end_ns"]))


def shortened(setup: PreparedScenario, end_ns: int) -> PreparedScenario:
    """Returns the same world, ending at `end_ns` if that is earlier."""
    return setup if end_ns >= setup.wan.end_ns else replace(setup, wan=replace(setup.wan, end_ns=end_ns))


def changed(setup: PreparedScenario, header: Header) -> tuple[str, ...]:
    """Returns the inputs of the run that differ in `setup`, by name: `source` (links as measured), names of
    tables, `window` (links as simulated)."""
    now, then = setup.header()["traces"], header.world["traces"]
    return tuple(name for name in sorted(then) if now.get(name) != then[name])


def remeasured(setup: PreparedScenario, header: Header) -> tuple[str, ...]:
    """Returns the changed inputs that come from the lake, whatever code reads them."""
    return tuple(name for name in changed(setup, header) if name != "window")


def describe_changes(names: Sequence[str], header: Header) -> str:
    """Returns `remeasured` in words; other code may also read the same samples differently."""
    links = f"link samples of {header.world['dataset']} from that time"
    what = [links if name == "source" else f"the rows of {name}" for name in names]
    other = "" if dict(header.code) == code_version() else ", or this code reads them otherwise"
    return f"{' and '.join(what)} are no longer those that the run saw{other}"
