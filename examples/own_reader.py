"""A reader of one's own: the CSV of a fictitious speed test becomes rows of `link_samples`.

python examples/own_reader.py

The reader is `examples/plugin/twin_megatest/reader.py`, 37 lines. Installed as a package it is found by `twin
ingest` by itself, under the entry point group `twin.readers`; here it is registered for this process.
"""

import sys
import tempfile
from pathlib import Path

import twin

sys.path.insert(0, str(Path(__file__).parent / "plugin"))
from twin_megatest.reader import MegaTest


def main() -> None:
    """Ingest one file with a good and a bad line."""
    folder = Path(tempfile.mkdtemp())
    (folder / "speed").mkdir()
    (folder / "speed" / "night.txt").write_text(
        "#megatest 1.0\n2026-03-01T00:00:00Z;paris;berlin;812.4\n2026-03-01T00:05:00Z;paris;berlin;n/a\n"
    )
    twin.register_reader(MegaTest())
    report = twin.Store(folder / "store").ingest(folder / "speed")
    for file in report.files:
        print(f"{file.path}: {file.reader}, {sum(file.stored.values())} stored, {file.rejected} rejected")
        for reject in file.examples:
            print(f"  row {reject.row} {reject.column}: {reject.raw!r}: {reject.reason}")


if __name__ == "__main__":
    main()
