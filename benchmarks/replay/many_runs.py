"""A lookup in a store of many runs: python -m benchmarks.replay.many_runs [--runs 1000,10000,100000]

Before a bench plays a run it looks for one with the same header: CPU time of that look among empty folders of
runs (`replay.store.run_index.same_config`), and what it comes to in a bench of as many runs.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from replay.store import run_index

LOOKS = 5


def look_s(store: Path) -> float:
    """CPU seconds of a look for a run that is not there."""
    begin = process_time()
    for _ in range(LOOKS):
        run_index.same_config(store, "tri-7b", "mpc", 0, "0" * 64)
    return (process_time() - begin) / LOOKS


def main() -> None:
    """Prints a line for every number of runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", default="1000,10000,100000")
    made = 0
    with TemporaryDirectory() as folder:
        store = Path(folder)
        for count in sorted(int(text) for text in parser.parse_args().runs.split(",")):
            for number in range(made, count):
                run_index.folder(store, f"tri-7b-mpc-s{number}-0a1b2c3d").mkdir(parents=True)
            made, spent_s = count, look_s(store)
            whole_s = spent_s * count / 2  # the store fills while the bench plays
            print(f"{count:>8,} runs  {1e3 * spent_s:7.1f} ms a look  {whole_s:9,.0f} s in a bench of them")


if __name__ == "__main__":
    main()
