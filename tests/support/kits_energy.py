"""Kits of the readers of power, carbon intensity and electricity prices."""

import io
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.kit import Bad, Kit, lines

CARBON = "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),"
CARBON += "Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage"
PRICES = "Datetime (UTC),Datetime (Local),Price (USD/MWh)"


def carbon(time: str = "2024-01-01 00:00:00", direct: str = "133.1", zone: str = "DE") -> str:
    return f"{time},Germany,Germany,{zone},{direct},177.74,83.26"


def price(time: str = "2024-01-01 00:00:00+00:00", usd: str = "-65.06") -> str:
    return f"{time},2024-01-01 01:00:00+01:00,{usd}"


def table(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def power(*watts: float | None) -> bytes:
    count = len(watts)
    return table(
        host=["r27n19r27n13"] * count,
        power_draw=pa.array(watts, pa.float64()),
        energy_usage=pa.array([30.0 * (one or 0) for one in watts]),
        timestamp=pa.array([30_000 * (at + 1) for at in range(count)]),
    )


def tasks(*durations_ms: int) -> bytes:
    count = len(durations_ms)
    return table(
        id=[str(at) for at in range(count)],
        submission_time=pa.array(
            [datetime(2022, 10, 6, 22, 0, at) for at in range(count)], pa.timestamp("ms")
        ),
        duration=pa.array(durations_ms),
        cpu_count=pa.array([16] * count, pa.int32()),
    )


def intensities(*grams: float) -> bytes:
    times = [datetime(2022, 1, 1, 0, 15 * at) for at in range(len(grams))]
    return table(timestamp=pa.array(times, pa.timestamp("ms")), carbon_intensity=pa.array(grams))


KITS = (
    Kit(
        "electricity-maps",
        "DE-LU_2024_hourly.csv",
        lines(CARBON, carbon(), carbon("2024-01-01 01:00:00")),
        {"carbon_intensity": 2},
        (
            Bad("negative", lines(CARBON, carbon(direct="-3"), carbon()), 1, 1, "negative"),
            Bad("no zone", lines(CARBON, carbon(zone=""), carbon()), 1, 1, "missing"),
            Bad("word", lines(CARBON, carbon(direct="low"), carbon()), 1, 1, "not a number"),
            Bad("no time", lines(CARBON, carbon("noon"), carbon()), 1, 1, "not a time"),
        ),
    ),
    Kit(
        "market-prices",
        "DE-LU_electricity_prices_2024.csv",
        lines(PRICES, price(), price("2024-01-01 01:00:00+00:00", "0.0")),
        {"electricity_prices": 2},
        (
            Bad("no price", lines(PRICES, price(usd=""), price()), 1, 1, "missing"),
            Bad("word", lines(PRICES, price(usd="cheap"), price()), 1, 1, "not a number"),
            Bad("infinite", lines(PRICES, price(usd="inf"), price()), 1, 1, "not a finite number"),
        ),
    ),
    Kit(
        "opendt-power",
        "consumption.parquet",
        power(22008.0, 21260.0),
        {"host_samples": 2},
        (
            Bad("negative", power(-1.0, 21260.0), 1, 1, "negative"),
            Bad("not finite", power(float("nan"), 21260.0), 1, 1, "not a finite number"),
        ),
        text=False,
    ),
    Kit(
        "opendt-carbon",
        "carbon.parquet",
        intensities(168.138693, 167.05),
        {"carbon_intensity": 2},
        (Bad("negative", intensities(-1.0, 5.0), 1, 1, "negative"),),
        text=False,
    ),
    Kit(
        "opendt-tasks",
        "tasks.parquet",
        tasks(27_935_000, 22_000),
        {"jobs": 2},
        (Bad("negative", tasks(-1, 22_000), 1, 1, "negative"),),
        text=False,
    ),
)
