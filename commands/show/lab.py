"""How predicted and measured steps of a lab look in a terminal."""

import statistics
from typing import TYPE_CHECKING

from commands.show.console import Console

if TYPE_CHECKING:  # a command loads only what it needs
    from lab.comparison import Compared


def comparison(console: Console, found: "Compared") -> None:
    """Prints cells, moves and the losses' largest difference."""
    links = f"{found.dataset}, SYNTHETIC" if found.synthetic else found.dataset
    console.table(
        f"{found.scenario} on {links}: time 1 : {found.time:g}, bytes 1 : {found.bytes:g}",
        ("plan", "schedule", "steps", "measured s", "predicted s", "error %", "kernel s", "error % "),
        [
            (
                cell.plan, cell.schedule, cell.steps, cell.measured_s, cell.predicted_s, 100 * cell.error,
                cell.kernel_s, 100 * cell.kernel_error,
            )
            for cell in found.cells
        ],
    )  # fmt: skip
    console.line()
    console.table(
        "moves",
        ("change", "moved MB", "measured s", "predicted s", "error %"),
        [
            (move.change, move.sent_bytes / 1e6, move.measured_s, move.predicted_s, 100 * move.error)
            for move in found.moves
        ],
    )
    errors = [abs(cell.error) for cell in found.cells]
    console.line()
    console.line(
        f"error of a step: median {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %; "
        f"loss against the same training in one process: at most {found.loss_gap:.1e} nats apart"
    )
    console.line(
        "predicted: the word of a posted receive crosses the link; kernel: known at once (p2p: rendezvous)"
    )
