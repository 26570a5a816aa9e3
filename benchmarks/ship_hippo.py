"""Trains the checkpoint that ships with the project, from nothing but the shipped traces and made-up
clusters.

    nice python -m benchmarks.ship_hippo [FOLDER] [--seed K]

Same sources and seed, same bytes: the digest in the file's name is that of the file in
`policy/hippo/shipped/`. Other seeds are for those who want to know how much luck is in one training
(`benchmarks/results.py` does).
"""

import argparse
import sys
import tempfile
from pathlib import Path

from ingest.core import resources
from ingest.pipeline.ingest import ingest
from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.networks.hippo_config import shipped
from policy.hippo.training.train import train
from twin.scenario import prepare as scenarios

SOURCES = (("tri-7b", "synthetic-tri"), ("quad-70b", "synthetic-quad"), ("octo-175b", "synthetic-octo"))


class Lines:
    """A line of progress now and then."""

    def __init__(self, seed: int) -> None:
        self._seed, self._done = seed, 0

    def start(self, total: int | None, what: str) -> None:
        """A new count begins."""
        print(f"seed {self._seed}: {what} {total}", file=sys.stderr, flush=True)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Say how far it is."""
        self._done += steps
        if self._done % 100 == 0 or note.startswith("reward"):
            print(f"seed {self._seed}: {self._done} {note}", file=sys.stderr, flush=True)


def made(folder: Path, seed: int) -> Path:
    """Train with `seed` and keep the checkpoint in `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch)
        ingest([resources.traces()], store)
        first, *others = [
            scenarios.prepare(scenarios.load(name), store, window="train", dataset=dataset)
            for name, dataset in SOURCES
        ]
        config = shipped("shipped").model_copy(update={"seed": seed})
        result = train(first, config=config, out=store / "out", others=others, progress=Lines(seed))
        kept = checkpoints.save(checkpoints.load(result.checkpoint_path), folder, digits=8)
    print(f"seed {seed}: {kept.name}, score {result.score:.4f}, {result.seconds:.0f} s")
    return kept


def main() -> None:
    """Train one checkpoint."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    own = Path(__file__).parents[1] / "policy" / "hippo" / "shipped"
    parser.add_argument("folder", type=Path, nargs="?", default=own)
    parser.add_argument("--seed", type=int, default=shipped("shipped").seed)
    given = parser.parse_args()
    made(given.folder, given.seed)


if __name__ == "__main__":
    main()
