"""Trains the shipped checkpoint from the shipped traces and random clusters alone.

    nice python -m benchmarks.hippo.ship [FOLDER] [--seed K]

Same sources and seed, same bytes. The file in `policy/hippo/shipped/` is older than the features of the past
(docs/measured/figures.md says how it was made to fit). Other seeds show the variance of one training
(`benchmarks/results/__main__.py`).
"""

import argparse
import sys
import tempfile
from pathlib import Path

from ingest.core import resources
from ingest.pipeline.ingest import ingest
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import shipped
from policy.hippo.training.train import train
from twin.scenario import prepare

SOURCES = (("tri-7b", "synthetic-tri"), ("quad-70b", "synthetic-quad"), ("octo-175b", "synthetic-octo"))


class Lines:
    """Progress as a line now and then."""

    def __init__(self, seed: int) -> None:
        self._seed, self._done = seed, 0

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Begins a count."""
        print(f"seed {self._seed}: {what} {total}", file=sys.stderr, flush=True)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advances the count."""
        self._done += steps
        if self._done % 100 == 0 or note.startswith("reward"):
            print(f"seed {self._seed}: {self._done} {note}", file=sys.stderr, flush=True)


def made(folder: Path, seed: int) -> Path:
    """Trains with `seed` and saves the checkpoint in `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch)
        ingest([resources.traces()], store)
        first, *others = [
            prepare.prepare(prepare.load(name), store, window="train", dataset=dataset)
            for name, dataset in SOURCES
        ]
        config = shipped("shipped").model_copy(update={"seed": seed})
        result = train(first, config=config, out=store / "out", others=others, progress=Lines(seed))
        kept = checkpoint.save(checkpoint.load(result.checkpoint_path), folder, digits=8)
    print(f"seed {seed}: {kept.name}, score {result.score:.4f}, {result.seconds:.0f} s")
    return kept


def main() -> None:
    """Trains one checkpoint."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    own = Path(__file__).parents[2] / "policy" / "hippo" / "shipped"
    parser.add_argument("folder", type=Path, nargs="?", default=own)
    parser.add_argument("--seed", type=int, default=shipped("shipped").seed)
    given = parser.parse_args()
    made(given.folder, given.seed)


if __name__ == "__main__":
    main()
