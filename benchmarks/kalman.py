"""Filter against EWMA and persistence on held-out windows of measured links: error and interval coverage.

    python benchmarks/kalman.py STORE [DATASET ...]

STORE holds the ingested sets. Each link is split in time, 70 % to fit, 30 % to test; every test sample is
forecast from the samples before it, h samples ahead. RMSE is in log units (0.1 = 10 %), over all links;
coverage is the share of test samples inside the central 80 % and 95 % interval. Also prints the cost of one
step of a bank.
"""

import sys
import time
from pathlib import Path

import numpy as np

from ingest import query
from twin.forecast import FORECASTERS
from twin.kalman import FilterBank
from twin.ou import OuParameters

AHEAD = (1, 2, 5)
Z80, Z95 = 1.2815516, 1.9599640
SQL = """
    SELECT src || '>' || dst AS link, epoch_ns(ts) / 1e9 AS t, avg(bandwidth_bps) AS bps FROM link_samples
    WHERE dataset = ? AND bandwidth_bps > 0 AND coalesce(duration_s, 99) >= 5 GROUP BY ALL ORDER BY 1, 2
"""


def links(store: Path, dataset: str) -> list[tuple[np.ndarray, np.ndarray]]:
    with query.connect(store) as connection:
        got = connection.execute(SQL, [dataset]).fetchnumpy()
    names = np.asarray(got["link"], dtype=str)
    parts = [np.flatnonzero(names == name) for name in np.unique(names)]
    return [(got["t"][p], np.log(np.asarray(got["bps"], np.float64)[p])) for p in parts if len(p) >= 60]


def judge(name: str, series: list[tuple[np.ndarray, np.ndarray]]) -> dict[int, tuple[float, float, float]]:
    """Horizon in samples -> RMSE, coverage of the 80 % and the 95 % interval."""
    errors: dict[int, list[tuple[float, float]]] = {h: [] for h in AHEAD}
    for times, values in series:
        cut = int(0.7 * len(values))
        model = FORECASTERS[name]()
        model.train(times[:cut], values[:cut])
        for k in range(cut, len(values)):
            for h in AHEAD:
                target = k - 1 + h
                if target < len(values):
                    mean, var = model.predict(float(times[target] - times[k - 1]))
                    errors[h].append((values[target] - mean, np.sqrt(var)))
            model.observe(float(times[k]), float(values[k]))
    out = {}
    for h, pairs in errors.items():
        e, sd = np.array(pairs).T
        out[h] = (
            float(np.sqrt(np.mean(e**2))),
            float(np.mean(np.abs(e) <= Z80 * sd)),
            float(np.mean(np.abs(e) <= Z95 * sd)),
        )
    return out


def step_cost(size: int = 56, steps: int = 2000) -> float:
    """Seconds of one observation of all links and one forecast at six horizons."""
    bank = FilterBank(OuParameters.of(np.full(size, 20.0), tau_s=600, sd=0.2, r=1e-3))
    index, z, horizons = np.arange(size), np.full(size, 20.0), np.array([0.0, 10, 30, 60, 120, 300])
    begin = time.perf_counter()
    for k in range(steps):
        bank.observe(k * 30_000_000_000, index, z)
        bank.forecast(k * 30_000_000_000, horizons)
    return (time.perf_counter() - begin) / steps


def main() -> None:
    store, datasets = Path(sys.argv[1]), sys.argv[2:] or ["cloudpilot-iperf3", "wanify-aws8"]
    for dataset in datasets:
        series = links(store, dataset)
        if not series:
            print(f"{dataset}: not in {store}")
            continue
        print(f"{dataset}: {len(series)} links")
        for name in FORECASTERS:
            cells = [
                f"h={h}: rmse {r:.4f} cover {c80:.1%} {c95:.1%}"
                for h, (r, c80, c95) in judge(name, series).items()
            ]
            print(f"  {name:12} " + "   ".join(cells))
    print(f"a step of 56 links with forecasts: {1e6 * step_cost():.0f} us")


if __name__ == "__main__":
    main()
