"""Own measurements -> lake -> plot: bandwidth between two sites from a CSV file, as quantiles and as a
picture.

    python examples/own_data.py [FOLDER]     # default: a made-up day of samples in a temporary folder

Any CSV or Parquet file with the columns `ts, src, dst, bandwidth_bps` needs no reader;
docs/guides/own-data.md says how other names and units are mapped.
"""

import math
import sys
import tempfile
from pathlib import Path

import twin


def made_up_day(folder: Path) -> Path:
    """A CSV file with a day of SYNTHETIC samples between Paris and Berlin, one every five minutes."""
    rows = ["ts,src,dst,bandwidth_bps,rtt_s"]
    for minute in range(0, 1440, 5):
        stamp = f"2026-03-01T{minute // 60:02}:{minute % 60:02}:00Z"
        load = 0.5 - 0.5 * math.cos(2 * math.pi * minute / 1440)
        rows.append(f"{stamp},paris,berlin,{4e9 - 2e9 * load:.0f},0.018")
        rows.append(f"{stamp},berlin,paris,{5e9 - 1e9 * load:.0f},0.018")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "links.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder


def main() -> None:
    """Ingest, query, plot."""
    work = Path(tempfile.mkdtemp())
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else made_up_day(work / "synthetic-day")
    store = twin.Store(work / "store")
    report = store.ingest(source)
    print(f"{sum(report.rows.values())} rows from {len(report.files)} file(s)")

    frame = store.sql(
        "select src, dst, count(*) as samples, quantile_cont(bandwidth_bps, 0.1) / 1e9 as p10_gbps,"
        " median(bandwidth_bps) / 1e9 as p50_gbps from link_samples group by all order by all"
    ).pl()
    print(frame)

    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3), layout="constrained")
    series = store.sql(
        "select src || ' > ' || dst as link, ts, bandwidth_bps from link_samples order by ts"
    ).pl()
    for (link,), part in series.group_by("link", maintain_order=True):
        axes.step(part["ts"], part["bandwidth_bps"] / 1e9, where="post", label=link)
    axes.set(ylabel="Gb/s", ylim=(0, None), title=f"{source.name}: bandwidth")
    axes.legend()
    figure.savefig(work / "links.svg")
    print(f"wrote {work / 'links.svg'}")


if __name__ == "__main__":
    main()
