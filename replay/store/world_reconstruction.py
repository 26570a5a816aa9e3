"""The world of a logged run, made again as it was though data sets have grown; and where it is another."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from replay.store.run_header import Header, code_version
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import Setup


def prepare(store: Path, header: Header) -> Setup:
    """The world of the run, as far as the run went: a what-if may end before the window does.

    Raises:
        NotFoundError: its data set is no longer in the store.
    """
    setup = scenarios.prepare(
        header.scenario(), store, window=header.window, seed=header.seed, seen=header.seen
    )
    return shortened(setup, int(header.world["end_ns"]))


def shortened(setup: Setup, end_ns: int) -> Setup:
    """The same world that ends at `end_ns`, or as early as it did."""
    return setup if end_ns >= setup.wan.end_ns else replace(setup, wan=replace(setup.wan, end_ns=end_ns))


def changed(setup: Setup, header: Header) -> tuple[str, ...]:
    """What the run was made from and `setup` is not, by name: `source` for the links as measured, tables that
    were read, `window` for the links that were run."""
    now, then = setup.header()["traces"], header.world["traces"]
    return tuple(name for name in sorted(then) if now.get(name) != then[name])


def remeasured(setup: Setup, header: Header) -> tuple[str, ...]:
    """Those of the changes that come from the lake alone: whatever code computes with them."""
    return tuple(name for name in changed(setup, header) if name != "window")


def told(names: Sequence[str], header: Header) -> str:
    """`remeasured` in words; other code may also read the same samples otherwise."""
    links = f"link samples of {header.world['dataset']} from that time"
    what = [links if name == "source" else f"the rows of {name}" for name in names]
    other = "" if dict(header.code) == code_version() else ", or this code reads them otherwise"
    return f"{' and '.join(what)} are no longer those that the run saw{other}"
