"""Trains the checkpoint that ships with the project, from nothing but the shipped traces and made-up
clusters.

    nice python benchmarks/ship_hippo.py [FOLDER]

Same sources, same bytes: the digest in the file's name is that of the file in `policy/hippo/shipped/`.
"""

import sys
import tempfile
from pathlib import Path

from ingest import resources
from ingest.ingestion import ingest
from policy.hippo import checkpoint as checkpoints
from policy.hippo.config import shipped
from policy.hippo.train import train
from twin import scenario as scenarios

SOURCES = (("tri-7b", "synthetic-tri"), ("quad-70b", "synthetic-quad"), ("octo-175b", "synthetic-octo"))


class Lines:
    """A line of progress now and then."""

    done = 0

    def start(self, total: int | None, what: str) -> None:
        print(what, total, file=sys.stderr)

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.done += steps
        if self.done % 100 == 0 or note.startswith("reward"):
            print(self.done, note, file=sys.stderr, flush=True)


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch)
        ingest([resources.traces()], store)
        windows = [
            scenarios.prepare(scenarios.load(name), store, window="train", dataset=dataset)
            for name, dataset in SOURCES
        ]
        result = train(
            windows[0], config=shipped("shipped"), out=store / "out", others=windows[1:], progress=Lines()
        )
        for update in result.curve:
            print(update.stage, update.update, update.steps, update.metrics)
        kept = checkpoints.save(checkpoints.load(result.checkpoint_path), folder, digits=8)
        print(kept, f"score {result.score:.4f}, {result.seconds:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "policy/hippo/shipped")
