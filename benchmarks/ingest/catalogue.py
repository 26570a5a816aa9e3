"""Write ingest/public/catalogue.csv: size and digest of each file in ../shared. python -m
benchmarks.ingest.catalogue."""

import csv
import hashlib
import io
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
TRACES = HERE.parent / "shared/traces"


def main() -> None:
    stated = tomllib.loads((HERE / "ingest/public/catalogue.toml").read_text())
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name, about in stated.items():
        root = TRACES / about["folder"] / name
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            writer.writerow([name, path.relative_to(root).as_posix(), len(data), digest])
    (HERE / "ingest/public/catalogue.csv").write_text(out.getvalue())


if __name__ == "__main__":
    main()
