"""Tokens over time of several runs in one plot, and what each is ahead of the first.

Equal runs give equal bytes: no date, no random ids.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from ingest.core.terminal import in_line
from ingest.core.units import NS_PER_S
from ingest.lake.plot import FORMATS
from replay.bench.chart_style import RC_PARAMS
from replay.inventory.side_by_side import ComparedRun
from replay.log.run_log import RunReader
from replay.metrics.paired_comparison import blocks_of
from replay.store import run_index

POINTS = 240
"""Points of a line, without its start."""
LETTERS = 48
"""Of the name of a run in the legend; the end of a longer one says more than its begin."""
Values = NDArray[np.float64]


def picture(store: Path, runs: Sequence[ComparedRun], path: Path) -> bytes:
    """Returns the plot in the format that the name of `path` asks for.

    Raises:
        UsageError: another format than SVG or PNG.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: the name must end in {' or '.join(FORMATS)}")
    form, metadata = FORMATS[path.suffix.lower()]
    return _drawn([(run.run_id, *line(store, run)) for run in runs], form, metadata)


def line(store: Path, run: ComparedRun) -> tuple[Values, Values]:
    """Returns hours (P,) since the start of a run and the tokens (P,) trained until then."""
    end_ns = run.header.window_ns
    events = RunReader(run_index.folder(store, run.run_id)).events()
    tokens = np.concatenate([[0.0], np.cumsum(blocks_of(events, end_ns, POINTS).tokens)])
    return np.linspace(0, end_ns / NS_PER_S / 3600, POINTS + 1), tokens


def _drawn(lines: Sequence[tuple[str, Values, Values]], form: str, metadata: dict[str, None]) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(RC_PARAMS):
        made = Figure(figsize=(8.0, 6.0), layout="constrained")
        above, below = made.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for name, hours, tokens in lines:
            above.plot(hours, tokens / 1e6, label=_short(name), lw=1.4)
            _ahead(below, lines[0], hours, tokens)
        above.set_ylabel("tokens, millions")
        below.set_ylabel("ahead of the first, %")
        below.set_xlabel("hours since the start")
        above.legend(fontsize=7, loc="upper left")
        out = io.BytesIO()
        made.savefig(out, format=form, metadata=metadata)
    return out.getvalue()


def _ahead(axis: Any, first: tuple[str, Values, Values], hours: Values, tokens: Values) -> None:
    """Draws tokens over those of the first run at the same hour, as far as both go."""
    both = hours <= first[1][-1]
    base = np.interp(hours[both], first[1], first[2])
    ratio = np.divide(tokens[both], base, out=np.full(int(both.sum()), np.nan), where=base > 0)
    axis.plot(hours[both], 100 * (ratio - 1), lw=1.4)


def _short(name: str) -> str:
    name = in_line(name)
    return name if len(name) <= LETTERS else f"...{name[-LETTERS:]}"
