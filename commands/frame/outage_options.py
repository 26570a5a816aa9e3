"""Options of `twin queue --nodes` about outages of nodes, with `--changes` or without, and what their words
mean."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingest.core.errors import UsageError

if TYPE_CHECKING:  # a command loads only what it needs
    from twin.nodes.outage_plan import OutagePlan

_OPTIONS = (
    click.option(
        "--outages", type=click.Path(path_type=Path), metavar="FILE",
        help="With --nodes: a CSV file of faults and drains of nodes: node,down_s,up_s,kind[,speed].",
    ),
    click.option(
        "--mtbf-h", type=click.FloatRange(0, 1e6, min_open=True), metavar="H",
        help="With --nodes: draw faults of each node, mean hours between them.",
    ),
    click.option(
        "--mttr-h", type=click.FloatRange(0, 1e6, min_open=True), metavar="H",
        help="With --mtbf-h: mean hours to repair a node [1].",
    ),
    click.option("--seed", type=click.IntRange(0, 2**32), metavar="N", help="Of --mtbf-h: seed [0]."),
    click.option(
        "--checkpoint-interval-s", type=click.FloatRange(0, 1e9), metavar="S",
        help="With outages: seconds of a run between checkpoints; 0: none are made [0].",
    ),
    click.option(
        "--notice-s", type=click.FloatRange(0, 3600), metavar="S",
        help="With outages and --changes: seconds until a fault is noticed [3].",
    ),
    click.option(
        "--notice-slow-s", type=click.FloatRange(0, 1e6), metavar="S",
        help="With --outages and --changes: seconds until a slow node is noticed [60].",
    ),
)  # fmt: skip


def outage_options(command: Any) -> Any:
    """Adds the options to a command, which takes them as keywords."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class OutageWords:
    """The options as they were said."""

    outages: Path | None
    mtbf_h: float | None
    mttr_h: float | None
    seed: int | None
    checkpoint_interval_s: float | None
    notice_s: float | None
    notice_slow_s: float | None

    @property
    def asked(self) -> bool:
        """True if any of them is said."""
        return any(getattr(self, name) is not None for name in self.__slots__)

    def plan(self) -> "OutagePlan":
        """Returns what they mean.

        Raises:
            UsageError: some do not go together.
        """
        from twin.nodes.outage_plan import NOTICE_S, NOTICE_SLOW_S, OutagePlan

        if self.outages is not None and self.mtbf_h is not None:
            raise UsageError("--outages goes without --mtbf-h: take the file, or draw faults")
        if self.mtbf_h is None and (self.mttr_h is not None or self.seed is not None):
            raise UsageError("--mttr-h and --seed belong to faults that are drawn: add --mtbf-h")
        if self.outages is None and self.mtbf_h is None and self.checkpoint_interval_s is not None:
            raise UsageError("--checkpoint-interval-s: nothing ends a job; add --outages or --mtbf-h")
        if self.outages is None and self.mtbf_h is None and self.notice_s is not None:
            raise UsageError("--notice-s: there are no faults to notice; add --outages or --mtbf-h")
        if self.outages is None and self.notice_slow_s is not None:
            raise UsageError("--notice-slow-s: slow nodes stand in a file; add --outages")
        return OutagePlan(
            self.outages, 3600 * (self.mtbf_h or 0.0), 3600 * (self.mttr_h or 1.0), self.seed or 0,
            self.checkpoint_interval_s or 0.0, NOTICE_S if self.notice_s is None else self.notice_s,
            NOTICE_SLOW_S if self.notice_slow_s is None else self.notice_slow_s,
        )  # fmt: skip
